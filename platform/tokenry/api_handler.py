"""The API's DRF views on ASGI. Django without middleware: no session, no CSRF, no cookie ever reaches the API.

Views that only compute (`TenantView.computes`: render, derender, tokenize) run straight on the event loop, or in a thread where the body is
large: Django's own way to a view, with its signals, its thread context and its body on disk, costs more than most of these calls.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpResponse

from tenants.callers import acaller
from tokenry.errors import as_api_error
from tokenry.guard import Receive, Scope, Send, bearer
from tokenry.pipeline import THREAD_FROM_BYTES

View = Any  # what `as_view()` makes: ASGIRequest -> HttpResponse, and `cls`

READ = {b"content-type", b"x-request-id", b"x-tokenry-explain"}  # by computing views; Django takes its time over each header


class ApiHandler(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self.computing = computing_views()

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware, self._template_response_middleware, self._exception_middleware = [], [], []
        self._middleware_chain = convert_exception_to_response(self._get_response_async if is_async else self._get_response)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view = self.computing.get(scope["path"])
        if view is not None:
            try:
                caller = await acaller(bearer(scope))  # here, because it may ask the database
            except Exception:
                view = None  # refused, or there is no database: the usual way answers that
        if view is None:
            await super().__call__(scope, receive, send)
        elif (body := await whole_body(receive)) is not None:
            request = ASGIRequest({**scope, "headers": [header for header in scope["headers"] if header[0] in READ]}, BytesIO(body))
            request.META["CONTENT_LENGTH"] = str(len(body))  # DRF takes a body without a length for none
            request.caller = caller
            try:
                large = len(body) > THREAD_FROM_BYTES and len(body) > view.cls.thread_from_bytes()
                response = await asyncio.to_thread(rendered, view, request) if large else rendered(view, request)
            except Exception as exc:
                raise as_api_error(exc) from exc  # the guard answers
            await reply(send, response)


def computing_views() -> dict[str, View]:
    """By exact path, those of the URL configuration that say so of themselves."""
    from tokenry.urls import urlpatterns  # its views need all applications to be there

    views = {f"/{entry.pattern}": entry.callback for entry in urlpatterns}
    return {path: view for path, view in views.items() if getattr(getattr(view, "cls", None), "computes", False)}


def rendered(view: View, request: ASGIRequest) -> HttpResponse:
    response: Any = view(request)
    return response.render() if hasattr(response, "render") else response


async def whole_body(receive: Receive) -> bytes | None:
    """None: the client has left."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def reply(send: Send, response: HttpResponse) -> None:
    body = response.content
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
