"""`GET /v1/models`: what this key may use."""

from __future__ import annotations

import time

from django.http import HttpResponse
from rest_framework.request import Request

from inference.errors import ModelNotFound
from inference.model import ServedModel
from inference.protocol.openai import ModelCard, ModelList
from tokenry.api.base import TenantView, answer
from tokenry.application import platform_state

STARTED = int(time.time())


class ModelsView(TenantView):
    def get(self, request: Request) -> HttpResponse:
        models = platform_state().fleet.models(self.caller.models)
        return answer(ModelList(data=[card(model, name) for model in models for name in model.names]))


class ModelView(TenantView):
    """`GET /v1/models/{id}`, as OpenAI's clients retrieve one."""

    def get(self, request: Request, name: str) -> HttpResponse:
        model = platform_state().fleet.model(name, self.caller.models)
        if name not in model.names:
            raise ModelNotFound(name)
        return answer(card(model, name))


def card(model: ServedModel, name: str) -> ModelCard:
    return ModelCard(id=name, created=STARTED, root=model.name, max_model_len=model.max_model_len)
