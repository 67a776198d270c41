"""Money without fractions: amounts are whole billionths of the currency unit, so that sums are exact on every database and in Lua."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

NANOS = 10**9
MICROS = 10**6


def to_nanos(amount: Decimal) -> int:
    return int(amount * NANOS)


def from_nanos(nanos: int) -> Decimal:
    return Decimal(nanos) / NANOS


@dataclass(frozen=True)
class Rates:
    """What a model's tokens cost, in millionths of the currency unit per million tokens."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def cost(self, *, prompt: int, completion: int, cached: int = 0) -> int:
        """In billionths, rounded up once from the half. `cached` tokens are part of the prompt."""
        thousandths = (prompt - cached) * self.input + cached * self.cached + completion * self.output
        return (thousandths + 500) // 1000


FREE = Rates()
