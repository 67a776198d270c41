from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import models
from django.db.models import Q

from tenants.models.key import Key
from tenants.models.tenant import Tenant
from tenants.money import Rates, from_nanos


class Status(models.TextChoices):
    """`started` is the only state that changes, and it changes once."""

    STARTED = "started"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # its process died; settled by a sweep with the tokens known to be sent


class Entry(models.Model):
    """The ledger: one row per admitted request. Written by `tenants.ledger` alone.

    Ids begin with the time, so that the order of ids is the order of admission: every list is read along an index on (whose, id), and a
    range of time is a range of ids (`tenants.entry_ids`).
    """

    id: str = models.CharField(primary_key=True, max_length=32)
    # Protected: a tenant or key that has used anything is switched off, not deleted.
    tenant: Tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="entries", db_index=False)
    key: Key = models.ForeignKey(Key, to_field="public_id", on_delete=models.PROTECT, related_name="entries", db_index=False)
    model: str = models.CharField(max_length=200)
    endpoint: str = models.CharField(max_length=40)
    request_id: str = models.CharField(max_length=200)
    status: str = models.CharField(max_length=12, choices=Status.choices, default=Status.STARTED)
    process: str = models.CharField(max_length=32)
    created: datetime = models.DateTimeField()
    settled: datetime | None = models.DateTimeField(null=True)

    reserved_tokens: int = models.PositiveBigIntegerField(help_text="The prompt's and an estimate of the output's.")
    prompt_tokens: int = models.PositiveBigIntegerField(default=0)
    completion_tokens: int = models.PositiveBigIntegerField(default=0)
    cached_tokens: int = models.PositiveBigIntegerField(default=0, help_text="Of the prompt's, those found in the prefix cache.")
    cost: int = models.BigIntegerField(default=0, help_text="In billionths of the currency unit.")
    rate_input: int = models.PositiveBigIntegerField(default=0, help_text="In millionths per million tokens, as at admission.")
    rate_output: int = models.PositiveBigIntegerField(default=0)
    rate_cached: int = models.PositiveBigIntegerField(default=0)
    effective: dict[str, Any] = models.JSONField(default=dict, help_text="Parameters that were not as built in, and where they came from.")

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "entries"
        indexes = [
            models.Index(fields=["tenant", "-id"], name="entry_tenant"),
            models.Index(fields=["key", "-id"], name="entry_key"),
            models.Index(fields=["tenant", "model", "-id"], name="entry_model"),
            models.Index(fields=["process"], condition=Q(status=Status.STARTED), name="entry_started"),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.status}"

    @property
    def rates(self) -> Rates:
        return Rates(self.rate_input, self.rate_output, self.rate_cached)

    @property
    def money(self) -> Decimal:
        return from_nanos(self.cost)

    @property
    def day(self) -> str:
        """The UTC day that it counts on: that of its admission, whenever it ends."""
        return self.created.date().isoformat()
