"""Orders, a clock that stands still, and both kinds of counters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from inference.errors import QuotaExceeded, RateLimited
from tenants.limits import Admission, Bounds, Granted, Order, Scope, Spent

NUMBERS = itertools.count()
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()


@dataclass
class Clock:
    now: float = NOON

    def __call__(self) -> float:
        return self.now


@dataclass
class Books:
    """What a ledger would have settled, per scope; the number of times that it was asked."""

    spent: dict[str, Spent] = field(default_factory=dict)
    asked: int = 0

    async def __call__(self, order: Order) -> Mapping[str, Spent]:
        self.asked += 1
        return {scope.name: self.spent.get(scope.name, Spent(scope.name, order.day)) for scope in order.scopes}


def order(
    key: Bounds | None = None, tenant: Bounds | None = None, *,
    tokens: int = 10, cost: int = 0, name: str = "a", clock: Clock | None = None, id: str | None = None,
) -> Order:
    scopes = (Scope(f"key:{name}", key or Bounds()), Scope("tenant:1", tenant or Bounds()))
    created = datetime.fromtimestamp((clock or Clock())(), UTC)
    return Order(f"r{next(NUMBERS)}" if id is None else id, "1", scopes, tokens, cost, created)


async def refusal(admission: Admission, order: Order) -> RateLimited | QuotaExceeded | None:
    try:
        await admission.admit(order)
    except (RateLimited, QuotaExceeded) as error:
        return error
    return None


async def granted(admission: Admission, order: Order, times: int) -> list[Granted]:
    return [await admission.admit(Order(f"{order.id}-{n}", order.tenant, order.scopes, order.tokens, order.cost, order.created))
            for n in range(times)]


def wait_of(error: RateLimited | QuotaExceeded | None) -> float:
    assert isinstance(error, RateLimited)
    return int(error.headers["retry-after-ms"]) / 1000
