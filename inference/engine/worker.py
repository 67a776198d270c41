"""The engine's process: `python -m inference.engine.worker FD`, where FD is a socket to its parent.

It computes in its main thread and has no other: between two steps it reads what came and writes what is ready, without blocking. When the
parent's end of the socket closes, it ends.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from inference.engine import wire

if TYPE_CHECKING:
    from inference.engine.config import EngineConfig
    from inference.engine.engine import Engine

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
STATS_S = 0.25
READ = 1 << 20


class ParentGone(Exception):
    """The other end of the socket closed."""


class Channel:
    """The socket to the parent. What it cannot take now waits here, so that a slow reader never holds up a step."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.sent_at = time.monotonic()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._unframer = wire.Unframer()
        self._unsent = bytearray()

    def receive(self, timeout: float) -> list[wire.ToEngine | wire.Unreadable]:
        """Messages that are there, waiting up to `timeout` seconds for the first."""
        events = select.POLLIN | select.POLLOUT if self._unsent else select.POLLIN
        self._poll.modify(self.sock, events)
        ready = self._poll.poll(timeout * 1000)
        self._flush()
        messages: list[wire.ToEngine | wire.Unreadable] = []
        while ready:
            try:
                data = self.sock.recv(READ)
            except BlockingIOError:
                break
            except ConnectionResetError:
                raise ParentGone from None
            if not data:
                raise ParentGone
            messages += [wire.read_by_engine(payload) for payload in self._unframer.feed(data)]
        return messages

    def send(self, message: wire.FromEngine) -> None:
        self.sent_at = time.monotonic()
        self._unsent += wire.frame(message)
        self._flush()

    def _flush(self) -> None:
        while self._unsent:
            try:
                del self._unsent[: self.sock.send(self._unsent)]
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                raise ParentGone from None


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="engine: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides when to stop
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    status = 0
    try:
        serve(channel, start(channel))
    except ParentGone:
        pass
    except Exception:
        log.exception("The engine cannot go on; whoever started it may start another")
        status = 1
    os._exit(status)  # at once: no library's clean-up may keep a process of which nothing more is expected


def start(channel: Channel) -> Engine:
    """Wait for the configuration, load, say so."""
    from inference.engine.load import load_engine

    config = await_config(channel)
    try:
        engine, info = load_engine(config)
    except Exception as exc:
        log.debug("The engine could not start", exc_info=True)
        channel.send(wire.Failed(f"{exc}" or type(exc).__name__))
        raise SystemExit(1) from None
    forget_what_stays()
    channel.send(wire.Ready(info))
    return engine


def forget_what_stays() -> None:
    """The libraries' 370,000 objects are never garbage: a full collection that walks them takes 150 ms, in the middle of a step.

    The second collection lets Python count them no longer: it puts off the next one until a quarter as many are new.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


def await_config(channel: Channel) -> EngineConfig:
    while True:
        for message in channel.receive(timeout=60.0):
            if isinstance(message, wire.Start):
                return message.config


def serve(channel: Channel, engine: Engine) -> None:
    """Read, step, write, until the parent goes."""
    stats_at = 0.0
    while True:
        timeout = min(engine.due_in(), HEARTBEAT_S) if engine.busy else HEARTBEAT_S
        for message in channel.receive(timeout):
            take(engine, message)
        outputs = engine.step() if engine.busy else []
        now = time.monotonic()
        stats = engine.stats() if now - stats_at > STATS_S else None
        if outputs or now - channel.sent_at > HEARTBEAT_S / 2:
            channel.send(wire.News(outputs, stats))
            stats_at = now if stats else stats_at


def take(engine: Engine, message: wire.ToEngine | wire.Unreadable) -> None:
    if isinstance(message, wire.Add):
        for request in message.requests:
            engine.add(request)
    elif isinstance(message, wire.Abort):
        engine.abort(message.ids)
    elif isinstance(message, wire.Unreadable):
        engine.refuse(message.ids, message.reason)


if __name__ == "__main__":
    main()
