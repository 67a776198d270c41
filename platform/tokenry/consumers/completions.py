"""`/v1/chat/completions` and `/v1/completions` over HTTP: JSON, or server-sent events when the request asks for a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tokenry import pipeline, sse
from tokenry.application import platform_state
from tokenry.auth import authenticate
from tokenry.consumers.base import ApiConsumer
from tokenry.guard import header
from tokenry.pipeline import CHAT, COMPLETIONS, Completion, Endpoint


class CompletionConsumer(ApiConsumer):
    """One coupled request: authenticate, resolve and render, admit, generate and derender, answer."""

    endpoint: Endpoint

    async def handle(self, body: bytes) -> None:
        state = platform_state()
        caller = await authenticate(self.scope)
        given_id = self.request_id if header(self.scope, b"x-request-id") else None
        completion = await pipeline.prepare(self.endpoint, caller, state.fleet, body, given_id)
        if header(self.scope, b"x-tokenry-explain") == "1":
            self.extra["x-tokenry-effective"] = pipeline.explained(completion.effective)
        async with pipeline.running(completion, state.accounting) as admitted:
            self.extra |= admitted.headers
            with state.watch.over(caller, completion.model.names, self.revoke):
                await self.generate(completion)

    async def generate(self, completion: Completion) -> None:
        await pipeline.open_streams(completion)
        self.node_seconds = completion.node_seconds
        if completion.streaming:
            await self.stream(events(completion))
        else:
            answer = await pipeline.whole(completion)
            self.node_seconds = completion.node_seconds
            await self.reply(answer)


class ChatConsumer(CompletionConsumer):
    endpoint = CHAT


class TextConsumer(CompletionConsumer):
    endpoint = COMPLETIONS


async def events(completion: Completion) -> AsyncIterator[bytes]:
    """The chunks, framed; those that became ready together travel together."""
    async for chunks in pipeline.stream(completion):
        if chunks:
            yield b"".join(map(sse.event, chunks))
