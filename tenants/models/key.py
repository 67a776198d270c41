from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from tenants import keys
from tenants.models.checked import Checked, check_model_list, is_names
from tenants.models.tenant import Member, Tenant


def default_scopes() -> list[str]:
    return list(keys.DEFAULT_SCOPES)


def check_scopes(value: Any) -> None:
    if not is_names(value) or not value or not set(value) <= set(keys.SCOPES):
        raise ValidationError(f"A key needs one or more of the scopes {', '.join(keys.SCOPES)}.")


class Key(Checked):
    """An API key. What is stored cannot be turned back into the key; `tenants.keys` says how it is made and checked."""

    tenant: Tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="keys")
    name: str = models.CharField(max_length=100)
    public_id: str = models.CharField(max_length=16, unique=True, editable=False)
    digest: bytes = models.BinaryField(max_length=32, editable=False)
    pepper_version: int = models.PositiveIntegerField(editable=False)
    last_four: str = models.CharField(max_length=4, editable=False)
    scopes: list[str] = models.JSONField(default=default_scopes, validators=[check_scopes])
    allowed_models: list[str] | None = models.JSONField(
        null=True, blank=True, validators=[check_model_list], help_text="The models it may use; empty for the tenant's."
    )
    expires_at: datetime | None = models.DateTimeField(null=True, blank=True)
    revoked_at: datetime | None = models.DateTimeField(null=True, blank=True, editable=False)
    # Restricted: a member who leaves is switched off, which stops its keys, and what they used stays accounted for.
    created_by: Member | None = models.ForeignKey(
        Member, null=True, blank=True, editable=False, on_delete=models.RESTRICT, related_name="keys"
    )
    created: datetime = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} (tk_{self.public_id}_…{self.last_four})"

    def clean(self) -> None:
        if self.created_by is not None and self.created_by.tenant_id != self.tenant_id:
            raise ValidationError("A key's maker is a member of its tenant.")

    @property
    def state(self) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= timezone.now() else "active"
