"""What drf-spectacular may say of our views. In a file of its own, because DRF imports it while its views are being defined."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes


class BodiesByTable(AutoSchema):
    """It looks for serializers, and complains; there are none, bodies are said by `tokenry.api.schema`."""

    def get_operation_id(self) -> str:
        return operation_id(self.method.lower(), self.path)

    def get_request_serializer(self) -> Any:
        return None

    def get_response_serializers(self) -> Any:
        return OpenApiTypes.OBJECT


def operation_id(method: str, path: str) -> str:
    """Unique, as it holds the whole path."""
    return "_".join([*path.strip("/").split("/"), method])
