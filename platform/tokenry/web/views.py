"""What the pages' views share: a person at the door, strict JSON in, JSON out, and errors in the one shape of the platform."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.generic import TemplateView, View

from inference.errors import ApiError, MethodNotAllowed, Unauthorized
from inference.protocol.codec import encode
from tokenry.errors import as_api_error


class Page(LoginRequiredMixin, TemplateView):
    """A page for whoever is logged in. `name` marks its place in the navigation."""

    name: ClassVar[str]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"page": self.name}

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        response: HttpResponse = super().render_to_response(context, **kwargs)
        response.headers["Cache-Control"] = "no-store"
        return response


class PageData(View):
    """What a page's script asks for, by session. Django's middleware has checked the CSRF token of whatever changes something."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            if not request.user.is_authenticated:
                raise Unauthorized("You are logged out.")
            return answer(self.handle(request, *args, **kwargs))
        except Exception as exc:
            return failure(as_api_error(exc))

    def handle(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method not in {name.upper() for name in ("get", "post") if hasattr(self, name)}:
            raise MethodNotAllowed(f"{request.method} is not allowed here.")
        return getattr(self, str(request.method).lower())(request, *args, **kwargs)


def answer(payload: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(encode(payload), status=status, content_type="application/json", headers={"Cache-Control": "no-store"})


def failure(error: ApiError) -> HttpResponse:
    response = answer(error.body(), error.status)
    for name, value in error.headers.items():
        response.headers[name] = value
    return response
