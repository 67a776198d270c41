"""The ASGI application: the whole public surface that is not plain Django, on one page.

Tenants' completions are Channels consumers, chosen by exact path; the rest of the API is DRF on a handler without middleware; the admin
and the pages are Django with its usual middleware. A generate node has its own few paths and none of the others.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tokenry.settings")

import django

django.setup(set_prefix=False)

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

from tokenry.api_handler import ApiHandler
from tokenry.application import node_state, platform_state
from tokenry.consumers.abort import AbortConsumer
from tokenry.consumers.completions import ChatConsumer, TextConsumer
from tokenry.consumers.generate import GenerateConsumer
from tokenry.consumers.node import NodeAbort, NodeCapabilities, NodeGenerate, NodeHealth, NodeMetrics, NodeModels, NodeNotFound
from tokenry.consumers.sessions import DerenderSocket
from tokenry.consumers.sockets import ChatSocket, TextSocket
from tokenry.errors import PAGES
from tokenry.guard import App, Guard, Receive, Scope, Send
from tokenry.options import ServeOptions

PLATFORM_HTTP: dict[str, App] = {
    "/v1/chat/completions": ChatConsumer.as_asgi(),
    "/v1/completions": TextConsumer.as_asgi(),
    "/inference/v1/generate": GenerateConsumer.as_asgi(),
    "/inference/v1/abort_requests": AbortConsumer.as_asgi(),
}
PLATFORM_SOCKETS: dict[str, App] = {
    "/v1/chat/completions": ChatSocket.as_asgi(),
    "/v1/completions": TextSocket.as_asgi(),
    "/v1/derender/session": DerenderSocket.as_asgi(),
}
NODE_HTTP: dict[str, App] = {
    "/inference/v1/generate": NodeGenerate.as_asgi(),
    "/inference/v1/abort_requests": NodeAbort.as_asgi(),
    "/abort_requests": NodeAbort.as_asgi(),
    "/health": NodeHealth.as_asgi(),
    "/healthz": NodeHealth.as_asgi(),
    "/readyz": NodeHealth.as_asgi(),
    "/metrics": NodeMetrics.as_asgi(),
    "/v1/models": NodeModels.as_asgi(),
    "/v1/scale_out/capabilities": NodeCapabilities.as_asgi(),
}


class Router:
    """Paths to applications, and the lifespan to the state of the role."""

    def __init__(self, state: Any, http: dict[str, App], sockets: dict[str, App], fallback: App, pages: App | None = None) -> None:
        self.state = state
        self.http = http
        self.sockets = sockets
        self.fallback = fallback
        self.pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif scope["type"] == "websocket":
            await self.sockets.get(scope["path"], no_socket)(scope, receive, send)
        else:
            await self.http_app(scope["path"])(scope, receive, send)

    def http_app(self, path: str) -> App:
        if self.pages is not None and (path == "/" or path.startswith(PAGES)):
            return self.pages
        return self.http.get(path, self.fallback)

    async def live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.state.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.state.stop()
        await send({"type": "lifespan.shutdown.complete"})


async def no_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """No WebSocket lives at this path: a 404 to the upgrade."""
    await receive()
    await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
    await send({"type": "websocket.http.response.body", "body": b""})


@cache
def built() -> App:
    """The application of this process's role. Made on first use: importing this page must need no model."""
    if ServeOptions.from_env().role == "generate":
        return Guard(Router(node_state(), NODE_HTTP, {}, NodeNotFound.as_asgi()), max_body=settings.MAX_BODY_BYTES, keyed=False)
    router = Router(platform_state(), PLATFORM_HTTP, PLATFORM_SOCKETS, ApiHandler(), ASGIHandler())
    return Guard(router, max_body=settings.MAX_BODY_BYTES, keyed=True)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    await built()(scope, receive, send)
