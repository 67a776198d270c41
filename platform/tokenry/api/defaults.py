"""`GET /v1/defaults?model=M`: the values that apply to a request that sets nothing, each with the layer it comes from."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from msgspec import Struct
from rest_framework.request import Request

from inference.resolve import Layer, Source, resolve
from tokenry.api.base import TenantView, answer
from tokenry.application import platform_state
from tokenry.pipeline import layers_of


class Sourced(Struct, kw_only=True):
    value: Any
    source: Source


class Bound(Struct, kw_only=True):
    """What binds a request beyond a default."""

    field: str
    kind: str  # enforced, range or forbidden
    reject: bool
    low: float | None
    high: float | None
    source: Source


class Defaults(Struct, kw_only=True):
    object: str = "defaults"
    model: str
    fields: dict[str, Sourced]
    policies: list[Bound]


class DefaultsView(TenantView):
    def get(self, request: Request) -> HttpResponse:
        model = platform_state().fleet.model(request.query_params.get("model"), self.caller.models)
        layers = layers_of(self.caller, model)
        fields = {name: Sourced(**shown) for name, shown in resolve({}, layers).explain().items()}
        return answer(Defaults(model=model.name, fields=fields, policies=policies(layers)))


def policies(layers: tuple[Layer, ...]) -> list[Bound]:
    return [
        Bound(field=name, kind=policy.kind, reject=policy.reject, low=policy.low, high=policy.high, source=layer.source)
        for layer in layers
        for name, policy in layer.policies.items()
    ]
