from __future__ import annotations

from django.db import models


class Counter(models.Model):
    """What a key or a tenant has used in a day or a month, for its budgets. Written in the transaction that settles the rows it sums up."""

    scope: str = models.CharField(max_length=60)  # "key:<public id>" or "tenant:<id>"
    period: str = models.CharField(max_length=10)  # "2026-12-01" or "2026-12"
    tokens: int = models.PositiveBigIntegerField(default=0)
    cost: int = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["scope", "period"], name="counter_once")]

    def __str__(self) -> str:
        return f"{self.scope} in {self.period}"
