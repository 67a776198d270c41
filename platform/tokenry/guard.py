"""The ASGI guard: what it refuses never reaches a view, and its body never reaches memory.

A body over the limit is a 413, a missing or malformed key a 401, both in the one error shape. A refused upload is read off and thrown
away, within bounds, because a client that is cut off while it sends sees a broken connection instead of the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from inference.errors import ApiError, NotFound, TooLarge, Unauthorized
from inference.protocol.codec import encode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

KEY_SHAPE = re.compile(r"tk_[A-Za-z0-9]+_[A-Za-z0-9_-]{16,}")
KEY_PREFIXES = ("/v1/", "/v2/", "/inference/", "/cohere/", "/tokenize", "/detokenize")
DRAIN_BYTES = 1 << 30
DRAIN_SECONDS = 10.0


class Guard:
    """Wraps the application. `keyed`: whether the API's paths need a tenant's key; a node has its own secret."""

    def __init__(self, app: App, *, max_body: int, keyed: bool) -> None:
        self.app = app
        self.max_body = max_body
        self.keyed = keyed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self.check(scope)
            await self.app(scope, Metered(receive, self.max_body), send)
        except ApiError as error:
            await drain(receive)
            await answer(send, error)

    def check(self, scope: Scope) -> None:
        path: str = scope["path"]
        if self.keyed and path.startswith(KEY_PREFIXES) and not key_shaped(bearer(scope)):
            raise Unauthorized()
        length = header(scope, b"content-length")
        if length is not None and length.isdigit() and int(length) > self.max_body:
            raise TooLarge(self.max_body)
        if "\x00" in path:
            raise NotFound("No such path.")


class Metered:
    """`receive`, counting: a body without an honest length is stopped at the limit too."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self.receive = receive
        self.limit = limit
        self.seen = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        if message["type"] == "http.request":
            self.seen += len(message.get("body", b""))
            if self.seen > self.limit:
                raise TooLarge(self.limit)
        return message


def key_shaped(token: str | None) -> bool:
    """Whether a token can be a key at all, before anything is looked up."""
    return token is not None and KEY_SHAPE.fullmatch(token) is not None


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def bearer(scope: Scope) -> str | None:
    """The token that a request brings, or None."""
    return token_of(header(scope, b"authorization"))


def token_of(authorization: str | None) -> str | None:
    """The token of `Bearer TOKEN`, the scheme in any case."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


async def drain(receive: Receive) -> None:
    """Read off what the client still sends, so that it gets to read the answer."""
    seen = 0
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while seen < DRAIN_BYTES:
                message = await receive()
                seen += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


async def answer(send: Send, error: ApiError) -> None:
    headers = {"content-type": "application/json", "cache-control": "no-store", "connection": "close", **error.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": encode(error.body())})
