"""The counters in the process. Nothing here awaits, so every step is atomic on the event loop; no second process may count beside it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tenants.limits.admission import FRESH_SECONDS, Admission, Granted, ReadSpent
from tenants.limits.bounds import Bounds, Hold, Order, Spent, SpentByScope
from tenants.limits.verdict import SLOT_MILLISECONDS, Reading, Refusal, Verdict
from tenants.limits.window import SECONDS, Window


@dataclass
class Counter:
    """One scope."""

    window: Window = field(default_factory=Window)
    holds: dict[str, Hold] = field(default_factory=dict)
    spent: Spent | None = None
    told_at: int = 0

    @property
    def running(self) -> int:
        return sum(hold.running for hold in self.holds.values())

    def tell(self, spent: Spent, now: int) -> None:
        """Settled sums only grow, so the largest number of a period is the newest; an older day than the one known says nothing."""
        known = self.spent
        if known is not None and spent.day < known.day:
            return
        self.spent, self.told_at = later(known, spent), now

    def is_stale(self, order: Order, now: int) -> bool:
        return self.spent is None or self.spent.day != order.day or now - self.told_at > FRESH_SECONDS * 1000

    def refusals(self, order: Order, bounds: Bounds, now: int) -> Iterator[tuple[str, int]]:
        """(limit, milliseconds to wait) for every limit that the order does not fit into."""
        window, rpm, tpm = self.window, bounds.requests_per_minute, bounds.tokens_per_minute
        if rpm is not None and window.requests + 1 > rpm:
            yield "requests", window.wait(window.requests + 1 - rpm, lambda bucket: bucket.requests, now)
        if tpm is not None and window.tokens + order.tokens > tpm:
            yield "tokens", window.wait(window.tokens + order.tokens - tpm, lambda bucket: bucket.tokens, now)
        if bounds.concurrency is not None and self.running + 1 > bounds.concurrency:
            yield "concurrency", SLOT_MILLISECONDS
        if self.spent is not None:
            yield from ((limit, 0) for limit in self.spent_budgets(order, bounds, self.spent))

    def spent_budgets(self, order: Order, bounds: Bounds, spent: Spent) -> Iterator[str]:
        tokens = order.tokens + sum(hold.tokens for hold in self.holds.values())
        cost = order.cost + sum(hold.cost for hold in self.holds.values())
        used = {
            "tokens_per_day": spent.day_tokens + tokens, "tokens_per_month": spent.month_tokens + tokens,
            "cost_per_day": spent.day_cost + cost, "cost_per_month": spent.month_cost + cost,
        }
        for limit, amount in used.items():
            bound = getattr(bounds, limit)
            if bound is not None and amount > bound:
                yield limit

    def place(self, id: str, hold: Hold, now: int) -> None:
        """Take, or correct what was taken: the window moves by the difference."""
        known = self.holds.get(id)
        if known is None:
            self.window.add(hold.tick, now, 1, hold.tokens)
        else:
            self.window.add(hold.tick, now, 0, hold.tokens - known.tokens)
        self.holds[id] = replace(hold)

    def reading(self, now: int) -> Reading:
        return Reading(self.window.requests, self.window.tokens, self.window.reset(now))


class LocalAdmission(Admission):
    renewed = False  # a hold lives as long as the process, and so does its request

    def __init__(self, read_spent: ReadSpent, clock: Callable[[], float] = time.time) -> None:
        super().__init__(read_spent)
        self.clock = clock
        self.counters: dict[str, Counter] = defaultdict(Counter)
        self.tidied = self.now()

    def now(self) -> int:
        return int(self.clock() * 1000)

    async def ask(self, order: Order, spent: SpentByScope | None) -> Verdict:
        now, counters = self.now(), [self.counters[scope.name] for scope in order.scopes]
        for scope, counter in zip(order.scopes, counters, strict=True):
            counter.window.forget(now)
            if spent is not None:
                counter.tell(spent[scope.name], now)
        if spent is None and any(s.bounds.budgeted and c.is_stale(order, now) for s, c in zip(order.scopes, counters, strict=True)):
            return Verdict(now // 1000, stale=True)
        refusals = [
            Refusal(place, limit, wait)
            for place, (scope, counter) in enumerate(zip(order.scopes, counters, strict=True))
            if order.id not in counter.holds
            for limit, wait in counter.refusals(order, scope.bounds, now)
        ]
        if not refusals:
            for counter in counters:
                counter.place(order.id, counter.holds.get(order.id) or Hold(now // 1000, order.tokens, order.cost), now)
        return Verdict(now // 1000, refusals, [counter.reading(now) for counter in counters])

    async def put(self, grants: Sequence[Granted]) -> None:
        now = self.now()
        for grant in grants:
            for scope in grant.order.scopes:
                self.counters[scope.name].place(grant.order.id, grant.hold, now)

    async def drop(self, grants: Sequence[Granted], spent: SpentByScope) -> None:
        now = self.now()
        for grant in grants:
            for scope in grant.order.scopes:
                self.counters[scope.name].holds.pop(grant.order.id, None)
        for name, told in spent.items():
            if name in self.counters:
                self.counters[name].tell(told, now)
        if now - self.tidied > SECONDS * 1000:
            self.tidied = now
            self.forget_idle(now)

    def forget_idle(self, now: int) -> None:
        """Of a scope that nobody uses any more nothing need be known: its budgets are in the ledger."""
        idle = [name for name, counter in self.counters.items() if not counter.holds and counter.window.reset(now) <= 0]
        for name in idle:
            del self.counters[name]


def later(known: Spent | None, told: Spent) -> Spent:
    if known is None or known.month != told.month:
        return told
    same_day = known.day == told.day
    return replace(
        told,
        day_tokens=max(told.day_tokens, known.day_tokens if same_day else 0),
        day_cost=max(told.day_cost, known.day_cost if same_day else 0),
        month_tokens=max(told.month_tokens, known.month_tokens),
        month_cost=max(told.month_cost, known.month_cost),
    )
