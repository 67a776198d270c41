from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from tenants.limits.bounds import Bounds
from tenants.models.checked import Checked
from tenants.models.key import Key
from tenants.models.tenant import Tenant
from tenants.money import to_nanos


def rate(words: str) -> Any:
    return models.PositiveBigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)], help_text=words)


def budget(words: str) -> Any:
    return models.PositiveBigIntegerField(null=True, blank=True, help_text=words)


def money(words: str) -> Any:
    return models.DecimalField(
        null=True, blank=True, max_digits=12, decimal_places=4, validators=[MinValueValidator(Decimal(0))], help_text=words
    )


class Limit(Checked):
    """The limits of a tenant, or of one of its keys; both apply. Empty is no limit. Days and months are UTC's."""

    tenant: Tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="limits")
    key: Key | None = models.OneToOneField(
        Key, null=True, blank=True, on_delete=models.CASCADE, related_name="limit", help_text="Empty for the tenant as a whole."
    )
    requests_per_minute: int | None = rate("Empty for no limit.")
    tokens_per_minute: int | None = rate("Prompt and output together; empty for no limit.")
    concurrency: int | None = rate("Requests at once; empty for no limit.")
    tokens_per_day: int | None = budget("Empty for no limit; 0 lets nothing pass.")
    tokens_per_month: int | None = budget("Empty for no limit; 0 lets nothing pass.")
    cost_per_day: Decimal | None = money("Empty for no limit; 0 lets nothing pass that has a price.")
    cost_per_month: Decimal | None = money("Empty for no limit; 0 lets nothing pass that has a price.")

    class Meta:
        ordering = ["tenant"]
        constraints = [models.UniqueConstraint(fields=["tenant"], condition=Q(key=None), name="limit_once_per_tenant")]

    def __str__(self) -> str:
        return f"{self.tenant}: {self.key or 'all keys'}"

    def clean(self) -> None:
        if self.key is not None and self.key.tenant_id != self.tenant_id:
            raise ValidationError({"key": "Not a key of this tenant."})

    def bounds(self) -> Bounds:
        return Bounds(
            self.requests_per_minute, self.tokens_per_minute, self.concurrency, self.tokens_per_day, self.tokens_per_month,
            None if self.cost_per_day is None else to_nanos(self.cost_per_day),
            None if self.cost_per_month is None else to_nanos(self.cost_per_month),
        )
