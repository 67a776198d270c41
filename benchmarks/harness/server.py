"""One server process of a benchmark: started, waited for with a bound, held still while another one computes, ended by its pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers"
STOP_SECONDS = 20
SETTLE_SECONDS = 1.5  # heartbeats inside a server that stood still for minutes must be heard again before it gets work
TAIL_LINES = 25
THREADING = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "TOKENRY_", "DATABASE_", "REDIS_")  # every server decides for itself


class ServerFailed(RuntimeError):
    """A server did not start, or died; the text ends with its last lines."""


@dataclass(frozen=True)
class Command:
    """How a server is started: `arguments` for the port that it is given, and what its environment has besides."""

    name: str
    arguments: Callable[[int], Sequence[object]]
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    ready_path: str = "/health"
    start_seconds: float = 300


@dataclass
class Server:
    command: Command
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self) -> None:
        end = time.monotonic() + self.command.start_seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise ServerFailed(f"{self.name} ended with status {self.process.returncode}:\n{self.tail()}")
            if answers(self.url + self.command.ready_path):
                return
            time.sleep(0.2)
        raise ServerFailed(f"{self.name} was not ready after {self.command.start_seconds:.0f} s:\n{self.tail()}")

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def hold(self) -> None:
        """Stand still: an idle server that polls would otherwise take time from the one that is measured."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """To the process and its children, which are a group of their own."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """SIGTERM to the process that was started, and the hard way for whatever is left of its group after that."""
        self.process.terminate()
        self.go_on()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self.signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(commands: Sequence[Command]) -> Iterator[list[Server]]:
    """Every server, ready and held still; started one after another, so that none is timed while another one loads."""
    servers: list[Server] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by a signal."))  # an exception, so that the servers end too
    with tempfile.TemporaryDirectory(prefix="tokenry-benchmark-") as folder:
        try:
            for command in commands:
                print(f"Starting {command.name} ...", flush=True)
                servers.append(server := start(command, Path(folder)))
                server.wait_until_ready()
                server.hold()
            yield servers
        finally:
            for server in servers:
                server.stop()


def start(command: Command, folder: Path) -> Server:
    port = free_port()
    path = folder / f"{command.name.replace(' ', '-')}-{port}.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(THREADING)}
    with path.open("wb") as log:
        process = subprocess.Popen(
            [str(part) for part in command.arguments(port)], cwd=folder, env={**kept, **command.env},
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return Server(command, port, process, path)


@contextmanager
def only(server: Server) -> Iterator[None]:
    """While this block runs, of all servers only this one does."""
    server.go_on()
    time.sleep(SETTLE_SECONDS)
    try:
        yield
    finally:
        server.hold()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
