"""The engine's process as its parent sees it: started with the right environment, spoken to over a socket, killed when it must be."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from inference.engine import wire
from inference.engine.config import EngineConfig

ROOT = Path(__file__).resolve().parents[2]
SOCKET_BUFFER = 1 << 20
SPINS = "20000"  # rounds of waiting before a thread sleeps, some tens of microseconds
# glibc gives large blocks back to the system and faults them in again at the next step: 40% of a step of 32 rows. On large pages the
# processor fetches ahead beyond 4 kB: a tenth of a step of 8 rows.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 28), "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def environment(config: EngineConfig) -> dict[str, str]:
    """What must be set before torch is imported.

    OpenMP's threads wait for one another some 600 times a step. By default they wait spinning, for milliseconds: on cores that anything
    else uses (our own HTTP side does), a step then takes many times as long (measured under load: 1 token/s against 8). With a bounded
    spin a waiting thread yields its core, and the threads need not be pinned either. On a quiet machine 1,000 rounds cost a sixth of the
    throughput of 1 and 8 rows; from 10,000 on nothing is lost.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if config.engine == "torch":
        ours |= {"OMP_NUM_THREADS": str(threads(config)), "GOMP_SPINCOUNT": SPINS} | KEEP_MEMORY
    return {**os.environ, **ours}


def threads(config: EngineConfig) -> int:
    """As configured, else as the environment says, else one per core that we may use."""
    return config.threads or int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))


def spawn(config: EngineConfig, end: socket.socket) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "inference.engine.worker", str(end.fileno())]
    return subprocess.Popen(command, env=environment(config), pass_fds=[end.fileno()], stdin=subprocess.DEVNULL)


class EngineProcess(asyncio.Protocol):
    """One life of the process. Every message goes to `on_message`; `on_exit` is called once, when it is gone."""

    def __init__(self, on_message: Callable[[wire.FromEngine], None], on_exit: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_exit = on_exit
        self._unframer = wire.Unframer()
        self._transport: asyncio.Transport | None = None
        self._popen: subprocess.Popen[bytes] | None = None

    async def start(self, config: EngineConfig) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        with theirs:
            self._popen = spawn(config, theirs)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        self.send(wire.frame(wire.Start(config)))

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen else None

    def send(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def kill(self) -> None:
        if self._popen is not None and self._popen.poll() is None:
            self._popen.kill()

    async def stop(self, patience_s: float = 2.0) -> None:
        """Close the socket, on which the process ends by itself; kill it when it does not."""
        if self._transport is not None:
            self._transport.close()
        if self._popen is None:
            return
        for _ in range(int(patience_s / 0.02)):
            if self._popen.poll() is not None:
                return
            await asyncio.sleep(0.02)
        self.kill()
        await asyncio.to_thread(self._popen.wait)

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not say that it is one

    def data_received(self, data: bytes) -> None:
        for payload in self._unframer.feed(data):
            self._on_message(wire.from_engine.decode(payload))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_exit()
