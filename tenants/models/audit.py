from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

from django.db import models
from django.utils import timezone

from tenants.models.tenant import Tenant


class AppendOnly(models.QuerySet):
    """Rows that are written once."""

    def update(self, **kwargs: Any) -> NoReturn:
        raise TypeError("The audit log is append-only.")

    def delete(self) -> NoReturn:
        raise TypeError("The audit log is append-only.")


class AuditEntry(models.Model):
    """Who changed what, when, and from where. `before` and `after` hold the fields that differ, with secrets masked."""

    class Action(models.TextChoices):
        CREATED = "created"
        CHANGED = "changed"
        DELETED = "deleted"

    # Without a constraint: the log outlives what it tells of. Null where no tenant is concerned (a price).
    tenant: Tenant | None = models.ForeignKey(
        Tenant, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", db_index=False
    )
    at: datetime = models.DateTimeField(default=timezone.now)
    actor: str = models.CharField(max_length=120, help_text="member:ID, user:ID, key:PUBLIC-ID, or system.")
    actor_name: str = models.CharField(max_length=200)
    source: str = models.CharField(max_length=120, help_text="The door it came through, and the address.")
    action: str = models.CharField(max_length=10, choices=Action.choices)
    object_type: str = models.CharField(max_length=40)
    object_id: str = models.CharField(max_length=40)
    object_name: str = models.CharField(max_length=200)
    before: dict[str, Any] = models.JSONField(default=dict)
    after: dict[str, Any] = models.JSONField(default=dict)

    objects = AppendOnly.as_manager()

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["tenant", "-id"], name="audit_tenant"),
            models.Index(fields=["object_type", "object_id", "id"], name="audit_object"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.object_type} {self.object_name}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("The audit log is append-only.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("The audit log is append-only.")
