"""`/v1/chat/completions` and `/v1/completions` as WebSockets: any number of streams at once over one connection.

Client: {"type": "create", "stream_id", "request"} and {"type": "cancel", "stream_id"}.
Server: {"type": "chunk", "stream_id", "chunk"} ..., then {"type": "done", "stream_id", "usage"} or {"type": "error", "stream_id", "error"}.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from django.conf import settings
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inference.errors import BadRequest, RateLimited
from tenants.callers import aholder
from tokenry import pipeline
from tokenry.application import platform_state
from tokenry.consumers.socket import ApiSocket
from tokenry.pipeline import CHAT, COMPLETIONS, Endpoint


class Frame(Struct, kw_only=True):
    """What a client sends. `request` stays raw: it is read as strictly as an HTTP body is, and by the same code."""

    type: str
    stream_id: Annotated[str, Meta(max_length=256)]  # every frame of the stream repeats it
    request: Raw | UnsetType = UNSET


class CompletionSocket(ApiSocket):
    """Every stream is a task of its own; a disconnect cancels them all."""

    endpoint: Endpoint
    frame = Frame
    named_by = "stream_id"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}
        await super().__call__(scope, receive, send)

    async def obey(self, frame: Frame, data: bytes) -> None:
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
            await self.fail(stream_id, exc)

    @property
    def busy(self) -> bool:
        return bool(self.tasks)

    async def release(self) -> None:
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ChatSocket(CompletionSocket):
    endpoint = CHAT


class TextSocket(CompletionSocket):
    endpoint = COMPLETIONS


def done(stream_id: str, completion: pipeline.Completion | None) -> dict[str, Any]:
    usage = None if completion is None else msgspec.to_builtins(completion.answer.usage)
    return {"type": "done", "stream_id": stream_id, "usage": usage}
