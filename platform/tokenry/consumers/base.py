"""What every HTTP consumer of the API shares: the body gathered, the work in a task, and a client that leaves noticed at once.

Channels hands a consumer one message at a time, so work that is done inside a handler never sees `http.disconnect`. Here the handler
only starts a task; the disconnect cancels it, and whatever the task holds is released in its own `finally`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from django.conf import settings

from inference.errors import ApiError, MethodNotAllowed, SchemaError, Unauthorized
from inference.protocol.codec import encode
from tokenry import sse
from tokenry.errors import as_api_error
from tokenry.guard import header
from tokenry.request_id import clean_id

JSON = b"application/json"


class ClientGone(Exception):
    """The connection is closed: there is nobody left to tell."""


class ApiConsumer(AsyncConsumer):
    """One request. A subclass writes `handle(body)`, which answers by `self.reply` or `self.stream`."""

    methods = ("POST",)
    reads_body = True
    heartbeat_seconds = settings.HEARTBEAT_SECONDS

    async def dispatch(self, message: Mapping[str, Any]) -> None:
        """Without Channels' housekeeping of database connections, a thread hop per message: consumers here hold none."""
        if message["type"] == "http.request":
            await self.http_request(message)
        elif message["type"] == "http.disconnect":
            await self.http_disconnect(message)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun = time.perf_counter()
        self.body: list[bytes] = []
        self.task: asyncio.Task[None] | None = None
        self.answering = False
        self.revoked = False
        self.extra: dict[str, str] = {}
        self.request_id = clean_id(header(scope, b"x-request-id"))
        self.node_seconds = 0.0
        await super().__call__(scope, receive, send)

    async def http_request(self, message: Mapping[str, Any]) -> None:
        self.body.append(message.get("body", b""))
        if not message.get("more_body") and self.task is None:
            self.task = asyncio.create_task(self.run())

    async def http_disconnect(self, message: Mapping[str, Any]) -> None:
        if self.task is not None and not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task])
        raise StopConsumer

    async def run(self) -> None:
        """The request, from its body to its last byte; every failure becomes an answer."""
        try:
            self.check()
            body, self.body = b"".join(self.body), []
            await self.handle(body)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if not self.revoked:
                raise
            await self.fail(Unauthorized("This key is no longer valid."))
        except Exception as exc:
            await self.fail(as_api_error(exc))

    def revoke(self) -> None:
        """End the request with an error: its key is no longer good. (A client that leaves cancels the task too, and hears nothing.)"""
        self.revoked = True
        if self.task is not None:
            self.task.cancel()

    def check(self) -> None:
        if self.scope["method"] not in self.methods:
            raise MethodNotAllowed(f"{self.scope['method']} is not allowed here; use {' or '.join(self.methods)}.")
        if self.reads_body and not is_json(header(self.scope, b"content-type")):
            raise SchemaError("Unsupported Media Type: Content-Type must be application/json.")

    async def handle(self, body: bytes) -> None:
        raise NotImplementedError

    async def fail(self, error: ApiError) -> None:
        if self.answering:
            await self.write(sse.failure(error), more=False)
        else:
            await self.reply(error.body(), status=error.status, headers=error.headers)

    async def reply(self, payload: Any, *, status: int = 200, headers: Mapping[str, str] | None = None, raw: bytes | None = None) -> None:
        """A whole answer: `payload` as JSON, or `raw` bytes as they are."""
        body = encode(payload) if raw is None else raw
        await self.head(status, JSON, headers or {}, length=len(body))
        await self.write(body, more=False)

    async def stream(self, events: AsyncIterator[bytes]) -> None:
        """Server-sent events. The head goes out at once, a comment whenever the model is silent for long."""
        await self.head(200, sse.CONTENT_TYPE, {"x-accel-buffering": "no"})
        self.answering = True
        heartbeat = asyncio.create_task(self.keep_alive())
        try:
            async for data in events:
                self.written = time.monotonic()
                await self.write(data, more=True)
        finally:
            heartbeat.cancel()
        await self.write(sse.DONE, more=False)

    async def keep_alive(self) -> None:
        """A comment after every `heartbeat_seconds` without an event, so that no proxy on the way takes the silence for an end."""
        self.written = time.monotonic()
        while True:
            silent = time.monotonic() - self.written
            if silent >= self.heartbeat_seconds:
                await self.write(sse.HEARTBEAT, more=True)
                self.written, silent = time.monotonic(), 0.0
            await asyncio.sleep(self.heartbeat_seconds - silent)

    async def head(self, status: int, content_type: bytes, headers: Mapping[str, str], *, length: int | None = None) -> None:
        overhead = max(0.0, time.perf_counter() - self.begun - self.node_seconds) * 1000
        named = {"cache-control": "no-store", "x-request-id": self.request_id, "x-tokenry-overhead-ms": f"{overhead:.2f}",
                 **self.extra, **headers}
        raw = [(b"content-type", content_type), *((k.lower().encode(), v.encode("latin-1", "replace")) for k, v in named.items())]
        if length is not None:
            raw.append((b"content-length", str(length).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def send(self, message: dict[str, Any]) -> None:
        try:
            await super().send(message)
        except OSError:  # how an ASGI server says that the connection is closed
            raise ClientGone from None

    async def write(self, data: bytes, *, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})


def is_json(content_type: str | None) -> bool:
    return (content_type or "").partition(";")[0].strip().lower() == "application/json"
