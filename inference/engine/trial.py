"""Trying a constraint out in a process of its own, before the engine compiles it.

A small regex can keep a compiler busy for minutes or eat all memory, and a thread cannot be ended from outside. A process can: it has a
limit on both, and it is the one that dies of it. It is forked, so it has the engine's vocabulary without loading it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from inference.protocol.engine import Constraint

LIMIT_S = 3.0  # of the processor, so that a busy machine refuses no more than an idle one
LIMIT_BYTES = 2 << 30  # beyond what the process begins with


class Trial:
    """For one thread at a time. The process is started when it is needed, and again after one that died."""

    def __init__(self, attempt: Callable[[Constraint], str | None]) -> None:
        self._attempt = attempt
        self._pipe: Connection | None = None

    def refusal(self, constraint: Constraint) -> str | None:
        """What is wrong with the constraint, if anything."""
        if self._pipe is None:
            self._pipe = start(self._attempt)
        try:
            self._pipe.send(constraint)
            verdict: str | None = self._pipe.recv()
        except (EOFError, OSError):
            self._pipe = None
            return f"it takes more than {LIMIT_S:g} s or {LIMIT_BYTES >> 30} GiB to compile."
        return verdict


def start(attempt: Callable[[Constraint], str | None]) -> Connection:
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=serve, args=(theirs, attempt), daemon=True).start()
    theirs.close()
    return ours


def serve(pipe: Connection, attempt: Callable[[Constraint], str | None]) -> None:
    """Until the engine goes. Overrunning the time ends the process by the signal's own default."""
    forget_files(pipe.fileno())
    limit_memory()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with contextlib.suppress(EOFError):
        while True:
            constraint = pipe.recv()
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
            verdict = attempt(constraint)
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send(verdict)


def forget_files(kept: int) -> None:
    """The engine's sockets must close with the engine: whoever waits at the other end learns of its end by it."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def limit_memory() -> None:
    statm = Path("/proc/self/statm")
    if statm.is_file():
        size = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + LIMIT_BYTES, size + LIMIT_BYTES))
