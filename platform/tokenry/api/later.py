"""Render doors of APIs that this version does not have: refused by name, so that nobody takes a 404 for a wrong address."""

from __future__ import annotations

from msgspec import Struct
from rest_framework.request import Request
from rest_framework.response import Response

from inference.errors import InvalidRequest, NotSupported
from inference.protocol.codec import decode
from tokenry.api.base import ScaleOutView


class ResponsesRequest(Struct, kw_only=True):
    previous_response_id: str | None = None


class ResponsesRenderView(ScaleOutView):
    def post(self, request: Request) -> Response:
        if decode(ResponsesRequest, request.data).previous_response_id is not None:
            raise InvalidRequest("previous_response_id cannot be rendered: no responses are kept here.", "previous_response_id")
        raise NotSupported("The Responses API is not supported by this server.")


class MessagesRenderView(ScaleOutView):
    def post(self, request: Request) -> Response:
        raise NotSupported("The Messages API is not supported by this server.")
