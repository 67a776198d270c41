from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.validators import MinValueValidator
from django.db import models

from tenants.models.checked import Checked
from tenants.money import MICROS, Rates


def amount(**more: Any) -> Any:
    return models.DecimalField(max_digits=12, decimal_places=6, validators=[MinValueValidator(Decimal(0))], **more)


class Price(Checked):
    """What a million tokens of a model cost. A change holds for requests that begin after it: each keeps the price it began with."""

    model: str = models.CharField(max_length=200, unique=True)
    input: Decimal = amount(default=Decimal(0))
    output: Decimal = amount(default=Decimal(0))
    cached: Decimal | None = amount(null=True, blank=True, help_text="Of prompt tokens found in the prefix cache; empty: as other input.")

    class Meta:
        ordering = ["model"]

    def __str__(self) -> str:
        return self.model

    def rates(self) -> Rates:
        cached = self.input if self.cached is None else self.cached
        return Rates(*(int(per_million * MICROS) for per_million in (self.input, self.output, cached)))
