"""The Content-Security-Policy of every page: nothing comes from another host, and the platform's own pages run no inline script."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

OWN = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# unfold's templates have inline scripts, styles and Alpine's expressions, which are evaluated; other hosts stay shut out all the same.
ADMIN = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class ContentSecurityPolicy:
    """Middleware."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        policy = ADMIN if request.path.startswith("/admin") else OWN
        response.headers.setdefault("Content-Security-Policy", policy)
        return response
