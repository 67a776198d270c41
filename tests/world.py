"""The tests' world: real processes started by the project's own commands, and the tenants that call them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO, TypeVar

import httpx

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
TOKENIZERS = ROOT / "tests" / "fixtures" / "tokenizers"
NODE_SECRET = "the tests' node secret"
SCRIPTED = ("--served-model-name", "m", "--max-model-len", "512", "--max-logprobs", "20")
STOP_SECONDS = 15
LOG_LINES = 60


@dataclass(frozen=True)
class Tenant:
    """A caller: its id, its key, and clients that send the key."""

    name: str
    id: str
    key: str
    url: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    @cached_property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=60)

    def asynchronous(self) -> httpx.AsyncClient:
        """A client for one test, used as `async with`: its connections belong to the test's event loop."""
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=60)


@dataclass
class Server:
    """One `manage.py serve` with a home, and so a database, of its own."""

    name: str
    url: str
    home: Path
    process: subprocess.Popen[bytes]
    ready_path: str
    env: Mapping[str, str] = field(default_factory=dict)  # beyond what every server has
    arguments: tuple[str, ...] = ()  # of manage.py
    tenants: dict[str, Tenant] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.home / "serve.log"

    @cached_property
    def node_client(self) -> httpx.Client:
        """Speaks to a node directly, as a platform does."""
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {NODE_SECRET}"}, timeout=60)

    def tenant(self, name: str, *defaults: str) -> Tenant:
        """The tenant of this name, made on first use with these defaults (`FIELD=VALUE`)."""
        if name not in self.tenants:
            flags = [part for default in defaults for part in ("--default", default)]
            made = json.loads(self.manage("create_tenant", name, *flags, "--json"))
            self.tenants[name] = Tenant(name, made["tenant"]["id"], made["key"], self.url)
        return self.tenants[name]

    def manage(self, *arguments: str, seconds: float = 60) -> str:
        """What a management command prints, run against this server's database."""
        env = {**environment(self.home), **self.env}
        done = subprocess.run(command(*arguments), env=env, capture_output=True, text=True, timeout=seconds)
        if done.returncode != 0:
            raise AssertionError(f"manage.py {' '.join(arguments)} failed: {done.stderr[-2000:]}")
        return done.stdout

    def wait_until_ready(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with status {self.process.returncode}:\n{self.log_tail()}")
            if answers(self.url + self.ready_path):
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.name} was not ready after {seconds} s:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def stop(self) -> None:
        """As an operator would: SIGTERM; and only then the hard way, with whatever the process had started."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def kill(self) -> None:
        """As a crash of the machine would end it, with whatever it had started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def start(self, seconds: float = 60) -> None:
        """Once more, at the same address, on what there is."""
        with self.log.open("a") as log:
            self.process = start(command(*self.arguments), {**environment(self.home), **self.env}, log)
        self.wait_until_ready(seconds)


class World:
    """Starts servers below one folder, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, Server] = {}
        self.broken: dict[str, str] = {}
        self.stack = ExitStack()

    def serve(self, name: str, *flags: str, seconds: float = 60, env: Mapping[str, str] = MappingProxyType({})) -> Server:
        """A server of this name, ready to answer; `flags` are those of `manage.py serve`. One that did not start is not tried again."""
        if name in self.broken:
            raise AssertionError(self.broken[name])
        home = self.folder / name
        home.mkdir(parents=True)
        port = free_port()
        arguments = ("serve", "--port", str(port), *flags)
        with (home / "serve.log").open("w") as log:
            process = start(command(*arguments), {**environment(home), **env}, log)
        ready_path = "/healthz" if "generate" in flags else "/readyz"
        server = self.servers[name] = Server(name, f"http://127.0.0.1:{port}", home, process, ready_path, env, arguments=arguments)
        try:
            server.wait_until_ready(seconds)
        except AssertionError as exc:
            self.broken[name] = str(exc)
            self.servers.pop(name).stop()
            raise
        return server

    def scripted_node(self, name: str, *flags: str, tokenizer: str = "t1") -> Server:
        """A generate node whose answers are in its requests."""
        return self.serve(
            name, "--role", "generate", "--engine", "scripted", "--tokenizer", str(TOKENIZERS / tokenizer), *SCRIPTED, *flags
        )

    def scripted_platform(
        self, name: str, node: Server, *flags: str, tokenizer: str = "t1", env: Mapping[str, str] = MappingProxyType({})
    ) -> Server:
        """A platform on that node."""
        own = ("--role", "platform", "--node", node.url, "--tokenizer", str(TOKENIZERS / tokenizer))
        return self.serve(name, *own, *SCRIPTED, *flags, env=env)

    def enter(self, context: AbstractContextManager[T]) -> T:
        """Something else that lives as long as the servers."""
        return self.stack.enter_context(context)

    def stop(self) -> None:
        self.stack.close()
        for server in reversed(self.servers.values()):  # platforms before the nodes that they use
            server.stop()


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


def environment(home: Path) -> dict[str, str]:
    """The tester's own, less every setting of Tokenry."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOKENRY_", "DATABASE_", "REDIS_"))}
    return {**kept, "TOKENRY_HOME": str(home), "TOKENRY_NODE_SECRET": NODE_SECRET, "OMP_NUM_THREADS": kept.get("OMP_NUM_THREADS", "2")}


def start(command: list[str], env: dict[str, str], log: TextIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        start_new_session=True, preexec_fn=end_with_parent,
    )


def end_with_parent() -> None:
    """A killed test run leaves no server behind (Linux; elsewhere it may)."""
    if sys.platform == "linux":
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def script(*steps: Any) -> dict[str, Any]:
    """What a request to the coupled and render endpoints carries so that the scripted engine answers with these steps."""
    return {"vllm_xargs": {"script": list(steps)}}
