"""`/v1/chat/completions/derender` and `/v1/completions/derender`: token ids back to an answer, whole or one chunk per call.

The service keeps nothing between calls: what a stream needs travels in `stream_state`, so any process can serve any call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.http import HttpResponse
from msgspec import Struct
from rest_framework.request import Request

from inference.compatibility import fingerprint_warning
from inference.derender import derender_chat, derender_chat_chunk, derender_completion, derender_completion_chunk
from inference.model import ServedModel
from inference.protocol.codec import decode
from inference.protocol.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
)
from inference.resolve import Effective
from tokenry.api.base import ScaleOutView, answer
from tokenry.application import platform_state
from tokenry.pipeline import CHAT, COMPLETIONS, THREAD_FROM_BYTES, Endpoint, effective_for

STREAM = b'"stream"'


class StreamFlag(Struct, kw_only=True):
    """The one key that decides which of two shapes the rest of the body must have."""

    stream: bool | None = None


class DerenderView(ScaleOutView):
    endpoint: ClassVar[Endpoint]
    carried: ClassVar[str]  # the key under which a body carries the tenant's original request
    whole: ClassVar[tuple[type[Any], Callable[[Any, ServedModel, Effective], Any]]]
    chunk: ClassVar[tuple[type[Any], Callable[[Any, ServedModel, Effective], Any]]]

    @classmethod
    def thread_from_bytes(cls) -> int:
        """Ids and logprobs are less work than text of their length, unless a parser reads a stream's whole history again."""
        parses = any(model.has_parser for model in platform_state().fleet.models())
        return THREAD_FROM_BYTES if parses else 4 * THREAD_FROM_BYTES

    def post(self, request: Request) -> HttpResponse:
        body = request.data
        shape, derender = self.chunk if streams(body) else self.whole
        asked = decode(shape, body)
        model = platform_state().fleet.model(asked.model, self.caller.models)
        effective = effective_for(self.endpoint, self.caller, model, getattr(asked, self.carried))
        self.explain(effective)
        self.warn(next(filter(None, (fingerprint_warning(given, model, strict=asked.strict) for given in fingerprints(asked))), None))
        return answer(derender(asked, model, effective))


class ChatDerenderView(DerenderView):
    endpoint, carried = CHAT, "chat_request"
    whole = (DerenderChatRequest, derender_chat)
    chunk = (DerenderChatStreamRequest, derender_chat_chunk)


class CompletionDerenderView(DerenderView):
    endpoint, carried = COMPLETIONS, "completion_request"
    whole = (DerenderCompletionRequest, derender_completion)
    chunk = (DerenderCompletionStreamRequest, derender_completion_chunk)


def streams(body: bytes) -> bool:
    """Whether the body is one chunk's. Looked for before it is read: a whole answer's body is long, and reading it twice shows."""
    return (STREAM in body or b"\\u" in body) and decode(StreamFlag, body).stream is True


def fingerprints(asked: Any) -> list[Any]:
    """Those that the generate answers in a body carry on."""
    many = getattr(asked, "generate_responses", None)
    answers = [getattr(asked, "generate_chunk", None), getattr(asked, "generate_response", None)] if many is None else many
    return [each.render_fingerprint for each in answers if each is not None]
