"""`/v1/chat/completions/render` and `/v1/completions/render`: what would be sent to a node, and nothing sent."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpResponse
from rest_framework.request import Request

from inference.protocol.codec import decode
from tokenry import pipeline
from tokenry.api.base import ScaleOutView, answer
from tokenry.application import platform_state
from tokenry.pipeline import CHAT, COMPLETIONS, Endpoint


class RenderView(ScaleOutView):
    endpoint: ClassVar[Endpoint]

    def post(self, request: Request) -> HttpResponse:
        asked = decode(self.endpoint.shape, request.data)
        model = platform_state().fleet.model(asked.model, self.caller.models)
        effective = pipeline.effective_for(self.endpoint, self.caller, model, asked)
        _, rendered = pipeline.render(self.endpoint, model, asked, effective, self.given_id)
        self.explain(effective)
        for prompt in rendered:
            prompt.generate.render_fingerprint = model.fingerprint
        return answer(self.shape([prompt.generate for prompt in rendered]))

    def shape(self, generates: list[Any]) -> Any:
        """Completions answer a list, whatever the number of prompts."""
        return generates


class ChatRenderView(RenderView):
    endpoint = CHAT

    def shape(self, generates: list[Any]) -> Any:
        return generates[0]


class CompletionRenderView(RenderView):
    endpoint = COMPLETIONS
