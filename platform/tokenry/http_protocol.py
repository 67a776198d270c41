"""uvicorn's HTTP protocol, with what a request writes in one go sent in one go.

uvicorn writes an answer's head and its body one after the other, and each is a system call that wakes the client: half of what a small
answer costs. Here the first waits for the second, or for the end of the event loop's round.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Gathering:
    """A transport that sends two writes at once. Everything but writing and closing is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self.loop = loop
        self.waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.waiting.append(data)
        if len(self.waiting) > 1:
            self.flush()
        else:
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        data, self.waiting = b"".join(self.waiting), []
        if data:
            self.transport.write(data)

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class GatheringHttp(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Gathering(transport, self.loop))  # type: ignore[arg-type]
