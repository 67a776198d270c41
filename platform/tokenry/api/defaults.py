"""`GET /v1/defaults?model=M`: the values that apply to a request that sets nothing, each with the layer it comes from."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from inference.resolve import Layer, resolve
from tokenry.api.base import TenantView, answer
from tokenry.application import platform_state
from tokenry.pipeline import layers_of


class DefaultsView(TenantView):
    def get(self, request: Request) -> Response:
        model = platform_state().fleet.model(request.query_params.get("model"), self.caller.models)
        layers = layers_of(self.caller, model)
        fields = resolve({}, layers).explain()
        return answer({"object": "defaults", "model": model.name, "fields": fields, "policies": policies(layers)})


def policies(layers: tuple[Layer, ...]) -> list[dict[str, Any]]:
    """What binds a request beyond defaults: enforced, ranged and forbidden fields."""
    return [
        {"field": name, "kind": policy.kind, "reject": policy.reject, "low": policy.low, "high": policy.high, "source": layer.source}
        for layer in layers
        for name, policy in layer.policies.items()
    ]
