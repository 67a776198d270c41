"""The one exception tree. Whoever raises names the field; `tokenry.errors` alone turns it into a response.

ApiError                      message, param; status, type and code are the class's
├── SchemaError        400    "Bad Request": the body is not of the shape that the endpoint takes
├── BadRequest         400    "BadRequestError": the shape is right, a value cannot be honoured
├── InvalidRequest     400    "invalid_request_error": OpenAI's own name for it, where the contract asks for it
├── Unauthorized       401    no key, unknown, expired, revoked: one and the same answer
├── ScopeMissing       403    the key lacks the scope
├── PermissionDenied   403    the endpoint is switched off on this server
├── NotFound           404    unknown path or object; another tenant's object too
│   └── ModelNotFound
├── MethodNotAllowed   405
├── Conflict           409
├── TooLarge           413    the body is over the limit
├── RateLimited        429    code requests | tokens | concurrency
├── QuotaExceeded      429    the budget is spent
├── InternalError      500
├── NotSupported       501    this server lacks the feature
└── Unavailable        503    code overloaded | no_node; always with Retry-After
"""

from __future__ import annotations

from typing import Any, ClassVar

MAX_ECHO = 200  # characters of the caller's own words in a message
MAX_MESSAGE = 3 * MAX_ECHO


def brief(text: str, limit: int = MAX_ECHO) -> str:
    """What a caller said, as a message may repeat it."""
    return text if len(text) <= limit else f"{text[:limit]}..."


class ApiError(Exception):
    """An answer other than 200. `param` names the field at fault (dotted path) or is None."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "InternalServerError"

    def __init__(
        self, message: str, param: str | None = None, *, code: str | int | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = brief(message, MAX_MESSAGE)
        self.param = param
        self.code: str | int = self.status if code is None else code
        self.headers: dict[str, str] = headers or {}

    def body(self) -> dict[str, Any]:
        """The one error shape of the platform."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class SchemaError(ApiError):
    status = 400
    type = "Bad Request"


class BadRequest(ApiError):
    status = 400
    type = "BadRequestError"


class InvalidRequest(ApiError):
    status = 400
    type = "invalid_request_error"


class Unauthorized(ApiError):
    status = 401
    type = "invalid_request_error"

    def __init__(self, message: str = "Incorrect API key provided.") -> None:
        super().__init__(message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


class ScopeMissing(ApiError):
    status = 403
    type = "permission_error"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This key lacks the scope {scope}.", code="scope_missing")


class PermissionDenied(ApiError):
    status = 403
    type = "PermissionDeniedError"


class NotFound(ApiError):
    status = 404
    type = "NotFoundError"


class ModelNotFound(NotFound):
    """Unknown, or not for this caller: one and the same text."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The model `{brief(name)}` does not exist.", "model")


class MethodNotAllowed(ApiError):
    status = 405
    type = "MethodNotAllowedError"


class Conflict(ApiError):
    status = 409
    type = "ConflictError"


class TooLarge(ApiError):
    status = 413
    type = "invalid_request_error"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request body is over the limit of {limit} bytes.", code="request_too_large")


class RateLimited(ApiError):
    """code is requests, tokens or concurrency; retry_after in seconds (waiting that long makes the next call pass)."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str, *, code: str, retry_after: float) -> None:
        super().__init__(message, code=code, headers=retry_headers(retry_after))


class QuotaExceeded(ApiError):
    status = 429
    type = "insufficient_quota"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="insufficient_quota", headers={"x-should-retry": "false"})


class InternalError(ApiError):
    status = 500
    type = "InternalServerError"

    def __init__(self, message: str = "Internal server error") -> None:
        super().__init__(message)


class NotSupported(ApiError):
    status = 501
    type = "NotImplementedError"


class Unavailable(ApiError):
    """code is overloaded or no_node; retry_after in seconds."""

    status = 503
    type = "ServiceUnavailableError"

    def __init__(self, message: str, *, code: str = "overloaded", retry_after: float = 1.0) -> None:
        super().__init__(message, code=code, headers=retry_headers(retry_after))


def retry_headers(seconds: float) -> dict[str, str]:
    """Retry-After in whole seconds, at least 1, and the exact wait in milliseconds for the SDKs that read it."""
    return {"Retry-After": str(max(1, -int(-seconds // 1))), "retry-after-ms": str(max(1, round(seconds * 1000)))}
