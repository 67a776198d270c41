"""What every WebSocket of the API shares: who may enter, frames read and errors told, idleness, revocation, the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, ClassVar

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from django.conf import settings

from inference.errors import ApiError, ModelNotFound
from inference.model import ServedModel
from inference.protocol.codec import decode, encode
from tokenry.application import platform_state
from tokenry.auth import authenticate_socket
from tokenry.errors import as_api_error

NORMAL, POLICY = 1000, 1008
SUBPROTOCOL = "tokenry"


class ApiSocket(AsyncConsumer):
    """One connection of one key. A subclass writes `obey`, and says what it holds (`busy`, `release`)."""

    frame: ClassVar[type[Any]]  # what a client sends
    named_by: ClassVar[str]  # the field of a frame that says what it is about

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.heard = time.monotonic()
        self.idle: asyncio.Task[None] | None = None
        self.closed = False
        self.held = ExitStack()  # what the connection has registered, until it ends
        self.scope, self.base_send = scope, send
        with suppress(StopConsumer):
            while True:  # Channels' own loop would also wait for a channel layer's groups, which there are none of, and takes twice as long
                await self.dispatch(await receive())
                await asyncio.sleep(0)  # a client that sends without pause holds up nobody else

    async def dispatch(self, message: Mapping[str, Any]) -> None:
        """Without Channels' housekeeping of database connections, a thread hop per message: sockets here hold none."""
        handlers = {"websocket.connect": self.connect, "websocket.receive": self.receive, "websocket.disconnect": self.disconnect}
        await handlers[message["type"]](message)

    async def connect(self, message: Mapping[str, Any]) -> None:
        """Who may not enter is told so by the upgrade's HTTP status, not by an accepted connection that closes."""
        try:
            self.caller, self.only_model = await authenticate_socket(self.scope)
            self.check()
        except ApiError as error:
            await self.refuse(error)
            raise StopConsumer from None
        offered = SUBPROTOCOL if SUBPROTOCOL in self.scope.get("subprotocols", ()) else None
        await self.send({"type": "websocket.accept", "subprotocol": offered})
        self.idle = asyncio.create_task(self.close_when_idle())
        self.held.enter_context(platform_state().watch.over(self.caller, (), self.revoke))

    def check(self) -> None:
        """Raises ApiError where nobody may enter."""

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
        data = b"" if data is None else data
        name: str | None = None
        try:
            frame = decode(self.frame, data, root="frame")
            name = getattr(frame, self.named_by)
            await self.obey(frame, data)
        except Exception as exc:
            await self.fail(name, exc)

    async def obey(self, frame: Any, data: bytes) -> None:
        """Do what a frame says. `data` is the whole of it, for those who read more of it."""
        raise NotImplementedError

    async def fail(self, name: str | None, exc: BaseException) -> None:
        await self.say({"type": "error", self.named_by: name, **as_api_error(exc).body()})

    def check_model(self, model: ServedModel) -> None:
        """A ticket may be bound to one model; the answer is that of a model that does not exist."""
        if self.only_model and self.only_model not in model.names:
            raise ModelNotFound(model.name)

    async def say(self, payload: Mapping[str, Any]) -> None:
        """One frame. A connection that is gone takes its work with it; that is no error."""
        try:
            await self.send({"type": "websocket.send", "text": encode(payload).decode()})
        except OSError:
            self.closed = True
            raise asyncio.CancelledError from None

    # ---- the end

    @property
    def busy(self) -> bool:
        """It works, so that a silent client is not taken for an idle one. Asked every second."""
        return False

    async def release(self) -> None:
        """End all work, and give back what is held."""

    async def close_when_idle(self) -> None:
        """A connection that is silent for long without work, or open for very long, ends; its work first."""
        begun = time.monotonic()
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            if now - begun > settings.SOCKET_MAX_SECONDS:
                break
            if self.busy:
                self.heard = now
            elif now - self.heard > settings.SOCKET_IDLE_SECONDS:
                break
        await self.close(NORMAL)

    def revoke(self) -> None:
        """The key is no longer good: everything on this connection ends, and then the connection."""
        platform_state().background(self.close(POLICY))

    async def close(self, code: int) -> None:
        await self.release()
        if not self.closed:
            self.closed = True
            await self.send({"type": "websocket.close", "code": code})

    async def disconnect(self, message: Mapping[str, Any]) -> None:
        self.closed = True
        self.held.close()
        if self.idle is not None:
            self.idle.cancel()
        await self.release()
        raise StopConsumer
