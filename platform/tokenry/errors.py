"""The only place where an exception becomes a status and a body."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions as drf
from rest_framework.response import Response

from inference import errors
from inference.errors import ApiError

logger = logging.getLogger("tokenry.errors")

PAGES = ("/admin", "/static/", "/playground", "/usage", "/dashboard")  # Django with its middleware, for browsers


def as_api_error(exc: BaseException) -> ApiError:
    """Whatever was raised, as an answer. What nobody foresaw is logged with its traceback, and its text stays here."""
    match exc:
        case ApiError():
            return exc
        case Http404():
            return errors.NotFound("Not found.")
        case OperationalError() | InterfaceError():
            logger.error("the database cannot be used: %s", str(exc).strip())
            return errors.Unavailable("The database of this server cannot be reached.", retry_after=1)
        case drf.MethodNotAllowed():
            return errors.MethodNotAllowed(str(exc.detail))
        case drf.UnsupportedMediaType():
            return errors.SchemaError("Content-Type must be application/json.")
        case RequestDataTooBig():
            return errors.TooLarge(0)
        case drf.APIException():
            return errors.BadRequest(str(exc.detail)) if exc.status_code < 500 else errors.InternalError()
        case _:
            logger.error("unhandled exception", exc_info=exc)
            return errors.InternalError()


def drf_handler(exc: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler."""
    error = as_api_error(exc)
    return Response(error.body(), status=error.status, headers=error.headers)


def is_page(request: HttpRequest) -> bool:
    """What people look at gets pages, everything else JSON."""
    return request.path.startswith(PAGES)


def json_response(error: ApiError) -> HttpResponse:
    return JsonResponse(error.body(), status=error.status, headers=error.headers)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_page(request):
        return defaults.page_not_found(request, exception)
    return json_response(errors.NotFound(f"No such path: {request.path}"))


def server_error(request: HttpRequest) -> HttpResponse:
    return defaults.server_error(request) if is_page(request) else json_response(errors.InternalError())


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return defaults.bad_request(request, exception) if is_page(request) else json_response(errors.BadRequest("The request cannot be read."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_page(request):
        return defaults.permission_denied(request, exception)
    return json_response(errors.PermissionDenied("Permission denied."))
