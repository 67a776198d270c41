from __future__ import annotations

from datetime import date
from decimal import Decimal

from django.db import models

from tenants.models.key import Key
from tenants.models.tenant import Tenant
from tenants.money import from_nanos


class Rollup(models.Model):
    """A day of a key with a model. Written in the transaction that settles the rows it sums up, so it is never behind them."""

    tenant: Tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="rollups", db_index=False)
    key: Key = models.ForeignKey(Key, to_field="public_id", on_delete=models.PROTECT, related_name="rollups", db_index=False)
    model: str = models.CharField(max_length=200)
    day: date = models.DateField(db_index=True)
    requests: int = models.PositiveBigIntegerField(default=0)
    failed: int = models.PositiveBigIntegerField(default=0, help_text="Of the requests, those that failed or were interrupted.")
    prompt_tokens: int = models.PositiveBigIntegerField(default=0)
    completion_tokens: int = models.PositiveBigIntegerField(default=0)
    cached_tokens: int = models.PositiveBigIntegerField(default=0)
    cost: int = models.BigIntegerField(default=0, help_text="In billionths of the currency unit.")

    class Meta:
        ordering = ["-day"]
        constraints = [models.UniqueConstraint(fields=["tenant", "day", "key", "model"], name="rollup_once")]

    def __str__(self) -> str:
        return f"{self.day}: {self.key_id}, {self.model}"

    @property
    def money(self) -> Decimal:
        return from_nanos(self.cost)
