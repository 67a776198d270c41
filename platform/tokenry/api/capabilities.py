"""`GET /v1/scale_out/capabilities`: what this server's pipeline endpoints can do."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request

from inference.compatibility import capabilities
from tokenry.api.base import ScaleOutView, answer
from tokenry.application import platform_state


class CapabilitiesView(ScaleOutView):
    def get(self, request: Request) -> HttpResponse:
        return answer(capabilities(platform_state().fleet.model(request.query_params.get("model"), self.caller.models)))
