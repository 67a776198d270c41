"""The playground: its page, and what its script asks for. The script itself speaks to the API's WebSocket, as any client would."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from msgspec import Struct

from inference.model import ServedModel
from inference.protocol.codec import decode
from inference.resolve import FLAGS, VALUES, resolve
from tenants import acting, tickets
from tenants.acting import Stage
from tenants.caller import Caller
from tenants.inheritance import PLACES
from tenants.models import Key
from tenants.selectors import intersection
from tokenry.api.defaults import policies
from tokenry.application import platform_state
from tokenry.pipeline import layers_of
from tokenry.web.views import Page, PageData
from tokenry.web.vocabulary import named, spelled

MOST_NAMES = 1000


class PlaygroundPage(Page):
    name = "playground"
    template_name = "web/playground.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        stages = acting.stages(self.request.user)
        return super().get_context_data(**kwargs) | {"stages": stages, "setup": setup(stages)}


def setup(stages: list[Stage]) -> dict[str, Any]:
    """All that the script knows of the tenants, keys and models; it asks for the rest."""
    return {
        "tenants": [shown_stage(stage) for stage in stages],
        "flags": dict(FLAGS),
        "values": list(VALUES),
        "places": {**PLACES, "request": "this request"},
        "urls": {name: reverse(f"playground-{name}") for name in ("ticket", "defaults", "tokens")},
        "socket": "/v1/chat/completions",
        "add_key": reverse("admin:tenants_key_add"),
        "login": reverse("admin:login"),
    }


def shown_stage(stage: Stage) -> dict[str, Any]:
    tenant = stage.tenant
    return {
        "id": tenant.pk, "name": tenant.name, "may_generate": stage.may_generate,
        "keys": [{"id": key.public_id, "name": str(key), "models": models_of(key)} for key in stage.keys],
    }


def models_of(key: Key) -> list[str]:
    allowed = intersection(key.allowed_models, key.tenant.allowed_models)
    return [name for model in platform_state().fleet.models(allowed) for name in model.names]


class TicketRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    key: str


class TicketData(PageData):
    """`POST /playground/ticket`: the socket's ticket for one of the person's keys, good once and for a minute."""

    def post(self, request: HttpRequest) -> dict[str, Any]:
        wanted = decode(TicketRequest, request.body)
        caller = acting.acting_caller(user=request.user, key_id=wanted.key)
        return {"ticket": tickets.sell(caller=caller, model=""), "expires_in": int(tickets.LIFETIME.total_seconds())}


class DefaultsData(PageData):
    """`GET /playground/defaults?key=K&model=M`: what a request that sets nothing gets, and from where."""

    def get(self, request: HttpRequest) -> dict[str, Any]:
        caller, model = acting_on(request, request.GET.get("key", ""), request.GET.get("model"))
        layers = layers_of(caller, model)
        return {"model": model.name, "fields": resolve({}, layers).explain(), "policies": policies(layers)}


class TokensRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    key: str
    model: str
    texts: list[str] = []
    ids: list[int] = []


class TokensData(PageData):
    """`POST /playground/tokens`: the ids of texts and the texts of ids. A candidate comes with one of them, and is shown with both."""

    def post(self, request: HttpRequest) -> dict[str, Any]:
        wanted = decode(TokensRequest, request.body)
        _, model = acting_on(request, wanted.key, wanted.model)
        return {
            "ids": {text: named(model.tokenizer, text) for text in wanted.texts[:MOST_NAMES]},
            "texts": {str(token_id): spelled(model.tokenizer, token_id) for token_id in wanted.ids[:MOST_NAMES]},
        }


def acting_on(request: HttpRequest, key_id: str, name: str | None) -> tuple[Caller, ServedModel]:
    """Raises NotFound, PermissionDenied, ScopeMissing."""
    caller = acting.acting_caller(user=request.user, key_id=key_id)
    return caller, platform_state().fleet.model(name, caller.models)
