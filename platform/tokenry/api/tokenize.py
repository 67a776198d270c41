"""`/tokenize` and `/detokenize`: the model's tokenizer and chat template, as render uses them."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request

from inference.errors import SchemaError
from inference.model import ServedModel
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.codec import decode
from inference.protocol.tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse
from inference.render import chat_tokens
from tokenry import pipeline
from tokenry.api.base import TenantView, answer
from tokenry.application import platform_state
from tokenry.pipeline import CHAT

CHAT_FIELDS = ("model", "tools", "add_special_tokens", "add_generation_prompt", "continue_final_message", "chat_template",
               "chat_template_kwargs")


class TokenizeView(TenantView):
    computes = True

    def post(self, request: Request) -> HttpResponse:
        asked = decode(TokenizeRequest, request.data)
        model = platform_state().fleet.model(asked.model, self.caller.models)
        ids = self.tokens(asked, model)
        strings = [model.tokenizer.piece(i) for i in ids] if asked.return_token_strs else None
        return answer(TokenizeResponse(count=len(ids), max_model_len=model.max_model_len, tokens=ids, token_strs=strings))

    def tokens(self, asked: TokenizeRequest, model: ServedModel) -> list[int]:
        if (asked.prompt is None) == (asked.messages is None):
            raise SchemaError("body: Expected either prompt or messages", "body.prompt")
        if asked.prompt is not None:
            return model.tokenizer.encode(asked.prompt, add_special_tokens=asked.add_special_tokens is not False)
        chat = ChatCompletionRequest(messages=asked.messages or [], **{name: getattr(asked, name) for name in CHAT_FIELDS})
        effective = pipeline.effective_for(CHAT, self.caller, model, chat)
        return chat_tokens(chat, effective, model)


class DetokenizeView(TenantView):
    computes = True

    def post(self, request: Request) -> HttpResponse:
        asked = decode(DetokenizeRequest, request.data)
        model = platform_state().fleet.model(asked.model, self.caller.models)
        return answer(DetokenizeResponse(prompt=model.tokenizer.decode(asked.tokens)))
