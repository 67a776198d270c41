"""What the DRF views of the API share: the caller at the door, the request's id, and headers on every answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from inference.errors import BadRequest, PermissionDenied
from inference.protocol.codec import encode
from inference.resolve import Effective
from tenants.caller import Caller
from tenants.callers import caller
from tokenry.application import platform_state
from tokenry.guard import token_of
from tokenry.pipeline import THREAD_FROM_BYTES, explained
from tokenry.request_id import clean_id

REQUEST_ID, EXPLAIN = "HTTP_X_REQUEST_ID", "HTTP_X_TOKENRY_EXPLAIN"  # as Django's META has them: `headers` makes a dict per request

PARSERS: list[BaseParser] = [kind() for kind in APIView.parser_classes]  # they keep nothing, so one of each serves all
RENDERERS: list[BaseRenderer] = [kind() for kind in APIView.renderer_classes]


class TenantView(APIView):
    """A view for tenants' keys. `self.caller` is settled before the handler runs.

    `scope` names what the key must be good for. `computes`: once the caller is known, nothing is asked of a database or a node.
    """

    scope: ClassVar[str] = "inference"
    computes: ClassVar[bool] = False
    caller: Caller
    explained: str | None = None
    warning: str | None = None

    @classmethod
    def thread_from_bytes(cls) -> int:
        """Of a view that computes: larger bodies are worked on in a thread."""
        return THREAD_FROM_BYTES

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        known = getattr(request._request, "caller", None)
        self.caller = caller(token_of(request.META.get("HTTP_AUTHORIZATION"))) if known is None else known
        self.caller.require(self.scope)
        super().initial(request, *args, **kwargs)

    def get_parsers(self) -> list[BaseParser]:
        return PARSERS

    def get_renderers(self) -> list[BaseRenderer]:
        return RENDERERS

    def perform_authentication(self, request: Request) -> None:
        """The key has said it all: there are no users here."""

    @property
    def default_response_headers(self) -> dict[str, str]:
        return dict(allowed(type(self)))

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        begun = time.perf_counter()
        self.request_id = clean_id(request.META.get(REQUEST_ID))
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Request-Id"] = self.request_id
        if self.explained is not None:
            response.headers["X-Tokenry-Effective"] = self.explained
        if self.warning is not None:
            response.headers["X-Tokenry-Warning"] = self.warning
        response.headers["X-Tokenry-Overhead-Ms"] = f"{(time.perf_counter() - begun) * 1000:.2f}"
        return response

    @property
    def source(self) -> str:
        """Where the call comes from, for the audit log."""
        return f"api {self.request.META.get('REMOTE_ADDR', '')}".strip()

    @property
    def given_id(self) -> str | None:
        """The caller's own request id, where a header gave one."""
        return self.request_id if REQUEST_ID in self.request.META else None

    def explain(self, effective: Effective) -> None:
        """Where the request asks for it, say in a header what applied and why."""
        if self.request.META.get(EXPLAIN) == "1":
            self.explained = explained(effective)

    def warn(self, warning: str | None) -> None:
        self.warning = warning


class ScaleOutView(TenantView):
    """Render and derender, which an operator can switch off (`--no-scale-out`)."""

    computes = True

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if platform_state().options.no_scale_out:
            raise PermissionDenied("The scale-out endpoints are disabled on this server (--no-scale-out).")


def whole_number(query: Mapping[str, str], name: str, default: int) -> int:
    """A query parameter that counts something."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise BadRequest(f"{name} must be a whole number, got {text[:50]!r}.", name)
    return int(text)


def answer(payload: Any, status: int = 200) -> HttpResponse:
    """JSON by the strict codec. DRF's own Response chooses among renderers, and there is one."""
    return HttpResponse(encode(payload), content_type="application/json", status=status)


@cache
def allowed(view: type[APIView]) -> dict[str, str]:
    """The headers that DRF gives every answer; it makes them anew each time."""
    return {"Allow": ", ".join(view().allowed_methods)}
