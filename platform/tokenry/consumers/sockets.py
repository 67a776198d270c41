"""`/v1/chat/completions` and `/v1/completions` as WebSockets: any number of streams at once over one connection.

Client: {"type": "create", "stream_id", "request"} and {"type": "cancel", "stream_id"}.
Server: {"type": "chunk", "stream_id", "chunk"} ..., then {"type": "done", "stream_id", "usage"} or {"type": "error", "stream_id", "error"}.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Annotated, Any

import msgspec
from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from django.conf import settings
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inference.errors import ApiError, BadRequest, ModelNotFound, RateLimited
from inference.model import ServedModel
from inference.protocol.codec import decode, encode
from tenants.callers import aholder
from tokenry import pipeline
from tokenry.application import platform_state
from tokenry.auth import authenticate_socket
from tokenry.errors import as_api_error
from tokenry.pipeline import CHAT, COMPLETIONS, Endpoint

NORMAL, POLICY = 1000, 1008
SUBPROTOCOL = "tokenry"


class Frame(Struct, kw_only=True):
    """What a client sends. `request` stays raw: it is read as strictly as an HTTP body is, and by the same code."""

    type: str
    stream_id: Annotated[str, Meta(max_length=256)]  # every frame of the stream repeats it
    request: Raw | UnsetType = UNSET


class CompletionSocket(AsyncConsumer):
    """One connection of one key. Every stream is a task of its own; a disconnect cancels them all."""

    endpoint: Endpoint

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.heard = time.monotonic()
        self.idle: asyncio.Task[None] | None = None
        self.closed = False
        self.held = ExitStack()  # what the connection has registered, until it ends
        await super().__call__(scope, receive, send)

    async def dispatch(self, message: Mapping[str, Any]) -> None:
        """Without Channels' housekeeping of database connections, a thread hop per message: sockets here hold none."""
        handlers = {"websocket.connect": self.connect, "websocket.receive": self.receive, "websocket.disconnect": self.disconnect}
        await handlers[message["type"]](message)

    async def connect(self, message: Mapping[str, Any]) -> None:
        """Who may not enter is told so by the upgrade's HTTP status, not by an accepted connection that closes."""
        try:
            self.caller, self.only_model = await authenticate_socket(self.scope)
        except ApiError as error:
            await self.refuse(error)
            raise StopConsumer from None
        offered = SUBPROTOCOL if SUBPROTOCOL in self.scope.get("subprotocols", ()) else None
        await self.send({"type": "websocket.accept", "subprotocol": offered})
        self.idle = asyncio.create_task(self.close_when_idle())
        self.held.enter_context(platform_state().watch.over(self.caller, (), self.revoke))

    async def refuse(self, error: ApiError) -> None:
        raw = [(b"content-type", b"application/json"), *((k.lower().encode(), v.encode()) for k, v in error.headers.items())]
        if "websocket.http.response" in self.scope.get("extensions", {}):
            await self.send({"type": "websocket.http.response.start", "status": error.status, "headers": raw})
            await self.send({"type": "websocket.http.response.body", "body": encode(error.body())})
        else:
            await self.send({"type": "websocket.close", "code": POLICY, "reason": error.message[:100]})

    async def receive(self, message: Mapping[str, Any]) -> None:
        self.heard = time.monotonic()
        text = message.get("text")
        data = message.get("bytes") if text is None else text.encode()
        stream_id: str | None = None
        try:
            frame = read_frame(data)
            stream_id = frame.stream_id
            self.obey(frame)
        except ApiError as error:
            await self.say({"type": "error", "stream_id": stream_id, **error.body()})

    def obey(self, frame: Frame) -> None:
        if frame.type == "cancel":
            task = self.tasks.get(frame.stream_id)
            if task is not None:
                task.cancel()
            return
        if frame.type != "create":
            raise BadRequest(f"type must be create or cancel, got {frame.type!r}.", "type")
        if frame.request is UNSET:
            raise BadRequest("A create frame needs a request.", "request")
        if frame.stream_id in self.tasks:
            raise BadRequest(f"stream_id {frame.stream_id!r} is in use.", "stream_id")
        if len(self.tasks) >= settings.MAX_SOCKET_STREAMS:
            limit = settings.MAX_SOCKET_STREAMS
            raise RateLimited(f"This socket has {limit} streams already, and no more are allowed.", code="concurrency", retry_after=1)
        task = asyncio.create_task(self.run(frame.stream_id, bytes(frame.request)))
        self.tasks[frame.stream_id] = task
        task.add_done_callback(lambda _: self.tasks.pop(frame.stream_id, None))

    async def run(self, stream_id: str, body: bytes) -> None:
        """One stream, from its request to `done` or `error`; a cancelled one ends with `done` and what it has used."""
        completion: pipeline.Completion | None = None
        try:
            caller = await aholder(self.caller.key_id)
            state = platform_state()
            completion = await pipeline.prepare(self.endpoint, caller, state.fleet, body, None, streaming=True)
            self.check_model(completion.model)
            async with pipeline.running(completion, state.accounting):
                with state.watch.over(caller, completion.model.names, self.revoke):
                    await pipeline.open_streams(completion)
                    async for chunks in pipeline.stream(completion):
                        for chunk in chunks:
                            await self.say({"type": "chunk", "stream_id": stream_id, "chunk": chunk})
            await self.say(done(stream_id, completion))
        except asyncio.CancelledError:
            if not self.closed:
                await self.say(done(stream_id, completion) | {"cancelled": True})
            raise
        except Exception as exc:
            await self.say({"type": "error", "stream_id": stream_id, **as_api_error(exc).body()})

    def check_model(self, model: ServedModel) -> None:
        """A ticket may be bound to one model; the answer is that of a model that does not exist."""
        if self.only_model and self.only_model not in model.names:
            raise ModelNotFound(model.name)

    async def say(self, payload: Mapping[str, Any]) -> None:
        """One frame. A connection that is gone takes its streams with it; that is no error."""
        try:
            await self.send({"type": "websocket.send", "text": encode(payload).decode()})
        except OSError:
            self.closed = True
            raise asyncio.CancelledError from None

    async def close_when_idle(self) -> None:
        """A connection that is silent for long without work, or open for very long, ends; its streams first."""
        begun = time.monotonic()
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            if now - begun > settings.SOCKET_MAX_SECONDS:
                break
            if self.tasks:
                self.heard = now
            elif now - self.heard > settings.SOCKET_IDLE_SECONDS:
                break
        await self.close(NORMAL)

    def revoke(self) -> None:
        """The key is no longer good: everything on this connection ends, and then the connection."""
        platform_state().background(self.close(POLICY))

    async def close(self, code: int) -> None:
        await self.end_tasks()
        if not self.closed:
            self.closed = True
            await self.send({"type": "websocket.close", "code": code})

    async def end_tasks(self) -> None:
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def disconnect(self, message: Mapping[str, Any]) -> None:
        self.closed = True
        self.held.close()
        if self.idle is not None:
            self.idle.cancel()
        await self.end_tasks()
        raise StopConsumer


class ChatSocket(CompletionSocket):
    endpoint = CHAT


class TextSocket(CompletionSocket):
    endpoint = COMPLETIONS


def read_frame(data: bytes | None) -> Frame:
    return decode(Frame, data if data is not None else b"", root="frame")


def done(stream_id: str, completion: pipeline.Completion | None) -> dict[str, Any]:
    usage = None if completion is None else msgspec.to_builtins(completion.answer.usage)
    return {"type": "done", "stream_id": stream_id, "usage": usage}
