"""`GET /v1/scale_out/capabilities`: what this server's pipeline endpoints can do."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from inference.compatibility import capabilities
from tokenry.api.base import ScaleOutView, answer
from tokenry.application import platform_state


class CapabilitiesView(ScaleOutView):
    def get(self, request: Request) -> Response:
        return answer(capabilities(platform_state().fleet.model(request.query_params.get("model"), self.caller.models)))
