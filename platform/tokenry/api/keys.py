"""`/v1/keys`: a tenant's keys, by a key with the scope keys:manage. A key's text is in the answer that makes it, and nowhere else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponse
from msgspec import Struct
from rest_framework.request import Request

from inference.protocol.codec import decode
from tenants import key_service
from tenants.key_service import Issued
from tenants.keys import DEFAULT_SCOPES
from tenants.models import Key
from tokenry.api.base import TenantView, answer, whole_number


class CreateKeyRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """`allowed_models`: null for the tenant's models, an empty list for none. `limits` by the names of the admin's form."""

    name: str
    scopes: list[str] | None = None
    allowed_models: list[str] | None = None
    expires_at: datetime | None = None
    limits: dict[str, Any] | None = None


class RotateKeyRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    grace_seconds: float | None = None


class KeysView(TenantView):
    scope = "keys:manage"

    def get(self, request: Request) -> HttpResponse:
        page = key_service.list_keys(
            caller=self.caller, after=request.query_params.get("after"), limit=whole_number(request.query_params, "limit", 100))
        return answer({"object": "list", "data": [shown(key) for key in page.rows], "after": page.after})

    def post(self, request: Request) -> HttpResponse:
        wanted = decode(CreateKeyRequest, request.data)
        issued = key_service.create_key(
            caller=self.caller, name=wanted.name, scopes=DEFAULT_SCOPES if wanted.scopes is None else wanted.scopes,
            allowed_models=wanted.allowed_models, expires_at=wanted.expires_at, limits=wanted.limits,
            idempotency_key=request.headers.get("Idempotency-Key"), source=self.source)
        return answer(shown_once(issued), status=201)


class KeyView(TenantView):
    scope = "keys:manage"

    def get(self, request: Request, public_id: str) -> HttpResponse:
        return answer(shown(key_service.find_key(caller=self.caller, public_id=public_id)))

    def delete(self, request: Request, public_id: str) -> HttpResponse:
        """Revoke, for good."""
        return answer(shown(key_service.revoke_key(caller=self.caller, public_id=public_id, source=self.source)))


class KeyRotateView(TenantView):
    scope = "keys:manage"

    def post(self, request: Request, public_id: str) -> HttpResponse:
        wanted = decode(RotateKeyRequest, request.data)
        grace = timedelta(seconds=0 if wanted.grace_seconds is None else wanted.grace_seconds)
        issued = key_service.rotate_key(
            caller=self.caller, public_id=public_id, grace=grace, idempotency_key=request.headers.get("Idempotency-Key"),
            source=self.source)
        return answer(shown_once(issued))


def shown(key: Key) -> dict[str, Any]:
    return {
        "object": "key",
        "id": key.public_id,
        "name": key.name,
        "state": key.state,
        "last_four": key.last_four,
        "scopes": key.scopes,
        "allowed_models": key.allowed_models,
        "created_at": key.created,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }


def shown_once(issued: Issued) -> dict[str, Any]:
    return {**shown(issued.key), "key": issued.text}
