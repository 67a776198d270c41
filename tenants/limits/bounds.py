"""What travels between a request and the counters. Money is in whole billionths of the currency unit, so that sums are exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime


@dataclass(frozen=True)
class Bounds:
    """The limits of one scope; None is no limit. The two rates are at least 1, a budget of 0 lets nothing pass."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    cost_per_day: int | None = None
    cost_per_month: int | None = None

    @property
    def any(self) -> bool:
        return any(getattr(self, f.name) is not None for f in fields(self))

    @property
    def budgeted(self) -> bool:
        return any(bound is not None for bound in (self.tokens_per_day, self.tokens_per_month, self.cost_per_day, self.cost_per_month))

    def token_bounds(self) -> list[int]:
        return [bound for bound in (self.tokens_per_minute, self.tokens_per_day, self.tokens_per_month) if bound is not None]

    def cost_bounds(self) -> list[int]:
        return [bound for bound in (self.cost_per_day, self.cost_per_month) if bound is not None]

    def given(self) -> dict[str, int]:
        """Only those that are set."""
        return {f.name: bound for f in fields(self) if (bound := getattr(self, f.name)) is not None}


@dataclass(frozen=True)
class Scope:
    """A key or a tenant, and its limits."""

    name: str  # "key:<public id>" or "tenant:<id>"
    bounds: Bounds

    @property
    def noun(self) -> str:
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class Spent:
    """What the ledger has settled in a scope on a day and in its month (UTC). Within a period these numbers only grow."""

    scope: str
    day: str  # 2026-12-01
    day_tokens: int = 0
    day_cost: int = 0
    month_tokens: int = 0
    month_cost: int = 0

    @property
    def month(self) -> str:
        return self.day[:7]


@dataclass
class Hold:
    """What an admitted request has taken and not yet settled. `tick` is the second it was admitted in."""

    tick: int
    tokens: int
    cost: int
    running: bool = True


@dataclass(frozen=True)
class Order:
    """A request at the door: `tokens` and `cost` are its prompt's and an estimate of its output's."""

    id: str
    tenant: str
    scopes: tuple[Scope, ...]
    tokens: int
    cost: int
    created: datetime

    @property
    def day(self) -> str:
        return self.created.date().isoformat()

    @property
    def month(self) -> str:
        return self.day[:7]


SpentByScope = Mapping[str, Spent]
