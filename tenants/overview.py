"""What goes on in some tenants, for whoever watches over them: the day's sums, how long answers took, and how near the budgets are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import F, QuerySet, Sum
from django.utils import timezone

from tenants.acting import usable_keys
from tenants.entry_ids import first_id
from tenants.ledger import book
from tenants.limits.bounds import Spent
from tenants.models import Entry, Key, Limit, Rollup, Status
from tenants.money import from_nanos
from tenants.usage import midnight

NEARLY = 0.8  # of a budget: from here on it needs attention
SOON = timedelta(days=14)
SAMPLE = 5000  # answers that a latency is read from: the newest
BUDGETS = (
    ("tokens today", "tokens_per_day", "day_tokens"),
    ("tokens this month", "tokens_per_month", "month_tokens"),
    ("cost today", "cost_per_day", "day_cost"),
    ("cost this month", "cost_per_month", "month_cost"),
)


@dataclass(frozen=True)
class Sums:
    requests: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Decimal = Decimal(0)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Line:
    """A model of a tenant on a day; latencies in seconds, None where nothing was answered."""

    tenant: str
    model: str
    sums: Sums
    half: float | None
    most: float | None


@dataclass(frozen=True)
class Budget:
    """`whose` is the tenant, or its key; amounts are tokens or money."""

    tenant: str
    whose: str
    what: str
    used: Decimal
    bound: Decimal

    @property
    def share(self) -> float:
        return 1.0 if self.bound == 0 else float(self.used / self.bound)

    @property
    def percent(self) -> int:
        return int(self.share * 100)

    @property
    def near(self) -> bool:
        return self.share >= NEARLY


def today() -> date:
    return datetime.now(UTC).date()


def daily(tenant_ids: Collection[int], days: int) -> list[tuple[date, Sums]]:
    """Each of the last days, today the last, also those on which nothing happened."""
    first = today() - timedelta(days=days - 1)
    rows = rollups(tenant_ids).filter(day__gte=first).order_by("day").values("day").annotate(**summed())
    found = {row["day"]: sums(row) for row in rows}
    return [(day, found.get(day, Sums())) for day in (first + timedelta(days=n) for n in range(days))]


def lines(tenant_ids: Collection[int], day: date) -> list[Line]:
    """The most used first."""
    names = ("tenant_id", "tenant__name", "model")
    rows = rollups(tenant_ids).filter(day=day).order_by(*names).values(*names).annotate(**summed())
    took = latencies(tenant_ids, day)
    found = [Line(row["tenant__name"], row["model"], sums(row), *spread(took[row["tenant_id"], row["model"]])) for row in rows]
    return sorted(found, key=lambda line: -line.sums.requests)


def latencies(tenant_ids: Collection[int], day: date) -> dict[tuple[int, str], list[float]]:
    """Seconds from admission to the end of answers, sorted, by tenant and model."""
    ended = Entry.objects.filter(tenant_id__in=tenant_ids, id__gte=first_id(midnight(day)), status=Status.COMPLETED, settled__isnull=False)
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    for tenant_id, model, created, settled in ended.order_by("-id").values_list("tenant_id", "model", "created", "settled")[:SAMPLE]:
        found[tenant_id, model].append((settled - created).total_seconds())
    for taken in found.values():
        taken.sort()
    return found


def spread(taken: Sequence[float]) -> tuple[float | None, float | None]:
    """(what half of them took at most, what 95 of 100 took at most)."""
    if not taken:
        return None, None
    return taken[(len(taken) - 1) // 2], taken[min(len(taken) - 1, len(taken) * 95 // 100)]


def budgets(tenant_ids: Collection[int]) -> list[Budget]:
    """Every budget of the tenants and their keys, the nearest to its end first."""
    day = today().isoformat()
    limits = list(Limit.objects.filter(tenant_id__in=tenant_ids).select_related("tenant", "key"))
    spent = book.spent({scope(limit): day for limit in limits})
    found = [budget for limit in limits for budget in budgets_of(limit, spent[scope(limit)])]
    return sorted(found, key=lambda budget: -budget.share)


def budgets_of(limit: Limit, spent: Spent) -> list[Budget]:
    whose = "the whole tenant" if limit.key is None else f"key {limit.key.name}"
    given = [(what, getattr(limit, bound), getattr(spent, used), bound) for what, bound, used in BUDGETS]
    return [
        Budget(limit.tenant.name, whose, what, from_nanos(used) if name.startswith("cost") else Decimal(used), Decimal(bound))
        for what, bound, used, name in given
        if bound is not None
    ]


def scope(limit: Limit) -> str:
    return book.tenant_scope(limit.tenant_id) if limit.key is None else book.key_scope(limit.key.public_id)


def expiring_keys(tenant_ids: Collection[int]) -> QuerySet[Key]:
    """Keys that work today and will not in two weeks, the next to go first."""
    return usable_keys().filter(tenant_id__in=tenant_ids, expires_at__lte=timezone.now() + SOON).order_by("expires_at")


def rollups(tenant_ids: Collection[int]) -> QuerySet[Rollup]:
    return Rollup.objects.filter(tenant_id__in=tenant_ids)


def summed() -> dict[str, Any]:
    return {f"sum_{name}": Sum(F(name)) for name in ("requests", "failed", "prompt_tokens", "completion_tokens", "cost")}


def sums(row: dict[str, Any]) -> Sums:
    cost = from_nanos(row["sum_cost"])
    return Sums(row["sum_requests"], row["sum_failed"], row["sum_prompt_tokens"], row["sum_completion_tokens"], cost)
