"""DRF at the edge of the strict codec: JSON bodies stay bytes until a protocol type reads them, and answers are msgspec's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from inference.protocol.codec import encode


class StrictJSONParser(BaseParser):
    """The body as bytes: a protocol type decodes it, so that presence and type of every field are kept as they came."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> bytes:
        return stream.read()


class JSONRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None) -> bytes:
        return b"" if data is None else encode(data)


class AnyAccept(BaseContentNegotiation):
    """Every answer is JSON, whatever Accept says: a client that asks for an event stream must get its error as JSON, not a 406."""

    def select_parser(self, request: Request, parsers: list[BaseParser]) -> BaseParser | None:
        fits = (request.content_type or "").partition(";")[0].strip().lower() == "application/json"
        return parsers[0] if fits else None

    def select_renderer(
        self, request: Request, renderers: list[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type
