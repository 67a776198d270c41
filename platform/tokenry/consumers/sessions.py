"""`/v1/derender/session`: derender streams whose parser and detokenizer stay alive, so that a chunk costs the size of its delta.

Client: {"type": "open", "session_id", "chat_request" or "completion_request", "prompt_token_ids", ...}, {"type": "chunk", "session_id",
"seq", "generate_chunk"}, {"type": "state", "session_id"}, {"type": "close", "session_id"}.
Server: {"type": "opened"}, {"type": "chunk", "seq", "chunk"}, {"type": "state", "seq", "stream_state", "stream_states"}, {"type": "closed"}
or {"type": "error", "error"}, each with its session_id.

A chunk sent twice is answered once: the second is passed over without a word. A session goes with its socket; its state, asked for in
time, opens it again anywhere.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Annotated, Any

from django.conf import settings
from msgspec import Meta, Struct

from inference.derender import Session, open_session
from inference.errors import BadRequest, NotFound, PermissionDenied, RateLimited
from inference.protocol.codec import decode
from inference.protocol.derender import OpenSession
from inference.protocol.generate import TokensChunk
from tenants.callers import aholder
from tokenry.application import platform_state
from tokenry.consumers.socket import ApiSocket
from tokenry.pipeline import CHAT, COMPLETIONS, effective_for

THREAD_FROM_IDS = 1024  # a longer chunk, or history to go through, is read in a thread, so that it holds up nobody else


class Frame(Struct, kw_only=True):
    """What every frame has. What it holds beside is read by its type, as strictly as an HTTP body."""

    type: str
    session_id: Annotated[str, Meta(max_length=256)]  # every frame of the session repeats it


class ChunkFrame(Struct, kw_only=True):
    seq: Annotated[int, Meta(ge=0)]
    generate_chunk: TokensChunk


@dataclass
class Open:
    """A session on this socket. `seq` is that of the last chunk taken; the first may have any."""

    session: Session
    seq: int | None = None
    since: float = field(default_factory=time.monotonic)

    @property
    def too_old(self) -> bool:
        return time.monotonic() - self.since > settings.SESSION_MAX_SECONDS


class DerenderSocket(ApiSocket):
    """Frames are answered in their order, one by one: there is no generation here that would have to be waited for."""

    frame = Frame
    named_by = "session_id"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.sessions: dict[str, Open] = {}
        await super().__call__(scope, receive, send)

    def check(self) -> None:
        if platform_state().options.no_scale_out:
            raise PermissionDenied("The scale-out endpoints are disabled on this server (--no-scale-out).")

    async def obey(self, frame: Frame, data: bytes) -> None:
        match frame.type:
            case "open":
                await self.open(frame.session_id, data)
            case "chunk":
                await self.derender(frame.session_id, data)
            case "state":
                await self.tell_state(frame.session_id)
            case "close":
                self.found(frame.session_id)
                self.drop(frame.session_id)
                await self.say({"type": "closed", "session_id": frame.session_id})
            case other:
                raise BadRequest(f"type must be open, chunk, state or close, got {other!r}.", "type")

    async def open(self, session_id: str, data: bytes) -> None:
        if session_id in self.sessions:
            raise BadRequest(f"session_id {session_id!r} is in use.", "session_id")
        asked = decode(OpenSession, data, root="frame")
        caller = await aholder(self.caller.key_id)
        model = platform_state().fleet.model(asked.model, caller.models)
        self.check_model(model)
        original = asked.chat_request if asked.completion_request is None else asked.completion_request
        effective = effective_for(CHAT if asked.completion_request is None else COMPLETIONS, caller, model, original)
        self.take_place()
        try:
            session = await off_loop(asked.history, open_session, asked, model, effective)
            self.sessions[session_id] = Open(session)
        except BaseException:
            self.give_place_back()
            raise
        await self.say({"type": "opened", "session_id": session_id, "model": model.answering_to(asked.model)})

    async def derender(self, session_id: str, data: bytes) -> None:
        opened = self.found(session_id)
        frame = decode(ChunkFrame, data, root="frame")
        if opened.seq is not None and frame.seq <= opened.seq:
            return
        if opened.seq is not None and frame.seq > opened.seq + 1:
            raise BadRequest(f"seq must be {opened.seq + 1}, got {frame.seq}: a chunk in between is missing.", "seq")
        chunk = frame.generate_chunk
        ids = sum(len(part.token_ids) for part in chunk.choices if part.token_ids is not None)
        made = await off_loop(ids, opened.session.feed, chunk)
        opened.seq = frame.seq
        await self.say({"type": "chunk", "session_id": session_id, "seq": frame.seq, "chunk": made})

    async def tell_state(self, session_id: str) -> None:
        opened = self.found(session_id)
        states = {str(index): state for index, state in opened.session.states.items()}
        await self.say({
            "type": "state", "session_id": session_id, "seq": opened.seq, "stream_state": states.get("0"), "stream_states": states
        })  # fmt: skip

    def found(self, session_id: str) -> Open:
        self.sweep()
        if session_id not in self.sessions:
            raise NotFound(f"There is no session {session_id!r}: it was never opened here, or is too old.", "session_id")
        return self.sessions[session_id]

    # ---- bounds: so many sessions of a tenant at once, each for so long

    def take_place(self) -> None:
        self.sweep()
        held, limit = platform_state().sessions, settings.MAX_TENANT_SESSIONS
        if held[self.caller.tenant_id] >= limit:
            raise RateLimited(f"This tenant has {limit} sessions already, and no more are allowed.", code="concurrency", retry_after=1)
        held[self.caller.tenant_id] += 1

    def give_place_back(self) -> None:
        held = platform_state().sessions
        held[self.caller.tenant_id] -= 1
        if not held[self.caller.tenant_id]:
            del held[self.caller.tenant_id]

    def drop(self, session_id: str) -> None:
        del self.sessions[session_id]
        self.give_place_back()

    def sweep(self) -> None:
        for session_id in [session_id for session_id, opened in self.sessions.items() if opened.too_old]:
            self.drop(session_id)

    @property
    def busy(self) -> bool:
        """A session alone keeps no connection open; this is when old ones are thrown out."""
        self.sweep()
        return False

    async def release(self) -> None:
        for session_id in list(self.sessions):
            self.drop(session_id)


async def off_loop(ids: int, work: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(work, *arguments) if ids > THREAD_FROM_IDS else work(*arguments)
