"""Event framing: how a chunk, an error and the end look on a server-sent event stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inference.errors import ApiError
from inference.protocol.codec import encode

CONTENT_TYPE = b"text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": the model is still silent\n\n"


def event(chunk: Any) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"


def failure(error: ApiError) -> bytes:
    """An error after the stream began, and its end: never a silent stop."""
    return event(error.body()) + DONE


class EventReader:
    """Cuts a byte stream into the data of its events; keeps the unfinished rest between calls. Comments are skipped."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self.rest:
            data = self.rest + data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *events, self.rest = data.split(b"\n\n")
        for block in events:
            for line in block.split(b"\n"):
                if line.startswith(b"data:"):
                    yield line[5:].strip()
