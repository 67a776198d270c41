"""Reads of the ledger, always of one tenant: single requests by their ids, and sums by day, key and model out of the roll-ups.

Lists are paged by where the last page ended, never by a number of rows to skip, so that the hundredth page costs what the first does.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

from django.db.models import Q, QuerySet, Sum

from inference.errors import BadRequest
from tenants.entry_ids import first_id
from tenants.models import Counter, Entry, Rollup, Status
from tenants.money import from_nanos
from tenants.threads import in_thread

T = TypeVar("T")
Group = Literal["day", "key", "model"]
COLUMNS: dict[Group, str] = {"day": "day", "key": "key_id", "model": "model"}
SUMS = ("requests", "failed", "prompt_tokens", "completion_tokens", "cached_tokens", "cost")
MOST = 1000
EXPORTED = (
    "id", "created", "settled", "status", "key", "model", "endpoint", "request_id",
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost",
)
EXPORT_CHUNK = 2000
FORGET_CHUNK = 5000
COUNTERS_KEPT = timedelta(days=62)  # the month before the last one is in nobody's budget


@dataclass(frozen=True)
class Page(Generic[T]):
    """`after` is what to ask for the next page with; None on the last."""

    rows: list[T]
    after: str | None


@dataclass(frozen=True)
class Filter:
    """Days are UTC's, the last one included; None is everything."""

    since: date | None = None
    until: date | None = None
    key: str | None = None
    model: str | None = None
    status: str | None = None


EVERYTHING = Filter()


@dataclass(frozen=True)
class Usage:
    """The sum of a group; what it was not grouped by is None. Cached tokens are part of the prompt's."""

    day: date | None
    key: str | None
    model: str | None
    requests: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost: Decimal


def summed(
    *, tenant_id: int | str, by: Sequence[Group], only: Filter = EVERYTHING, after: str | None = None, limit: int = 100
) -> Page[Usage]:
    """Newest day first, then by key and by model. Open requests are in no sum. Without `by`, one row of everything.

    Raises:
        BadRequest: `limit`, `after` or a filter cannot be.
    """
    if only.status is not None:
        raise BadRequest("Sums cannot be filtered by status.", "status")
    groups = [group for group in COLUMNS if group in by]
    columns = [COLUMNS[group] for group in groups]
    rows = days_of(Rollup.objects.filter(tenant_id=tenant_id), only)
    if after is not None:
        rows = rows.filter(beyond(groups, read_cursor(after, len(groups))))
    order = [f"-{column}" if column == "day" else column for column in columns]
    sums = rows.order_by(*order).values(*columns).annotate(**{f"sum_{name}": Sum(name) for name in SUMS})
    found = list(sums[: checked(limit) + 1]) if groups else [rows.aggregate(**{f"sum_{name}": Sum(name) for name in SUMS})]
    page = [usage(row) for row in found[:limit]]
    more = len(found) > limit
    return Page(page, write_cursor([getattr(page[-1], group) for group in groups]) if more else None)


def days_of(rows: QuerySet[Rollup], only: Filter) -> QuerySet[Rollup]:
    given = {"day__gte": only.since, "day__lte": only.until, "key_id": only.key, "model": only.model}
    return rows.filter(**{lookup: value for lookup, value in given.items() if value is not None})


def beyond(groups: Sequence[Group], last: Sequence[Any]) -> Q:
    """Rows that come after `last` in the order of the groups: a later first column, or the same and a later second, and so on."""
    found = Q(pk__in=[])
    same = Q()
    for group, value in zip(groups, last, strict=True):
        column = COLUMNS[group]
        found |= same & Q(**{f"{column}__{'lt' if group == 'day' else 'gt'}": value})
        same &= Q(**{column: value})
    return found


def usage(row: dict[str, Any]) -> Usage:
    sums = {name: row[f"sum_{name}"] or 0 for name in SUMS if name != "cost"}
    cost = from_nanos(row["sum_cost"] or 0)
    return Usage(row.get("day"), row.get("key_id"), row.get("model"), **sums, cost=cost)


def requests(*, tenant_id: int | str, only: Filter = EVERYTHING, after: str | None = None, limit: int = 100) -> Page[Entry]:
    """Single requests, newest first."""
    rows = entries(tenant_id, only)
    if after is not None:
        rows = rows.filter(id__lt=after)
    found = list(rows[: checked(limit) + 1])
    return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)


def entries(tenant_id: int | str, only: Filter) -> QuerySet[Entry]:
    """A range of days is a range of ids, which the index has in order."""
    given: dict[str, Any] = {
        "id__gte": None if only.since is None else first_id(midnight(only.since)),
        "id__lt": None if only.until is None else first_id(midnight(only.until + timedelta(days=1))),
        "key_id": only.key, "model": only.model, "status": only.status,
    }
    wanted = {lookup: value for lookup, value in given.items() if value is not None}
    return Entry.objects.filter(tenant_id=tenant_id, **wanted).order_by("-id")


async def export(*, tenant_id: int | str, only: Filter = EVERYTHING) -> AsyncIterator[str]:
    """CSV, oldest request first, in pieces. Between two pieces no database connection is held, however slow the reader is."""
    yield written([EXPORTED])
    last = ""
    while True:
        rows = await in_thread(next_rows, tenant_id, only, last)
        if rows:
            yield written(map(cells, rows))
        if len(rows) < EXPORT_CHUNK:
            return
        last = rows[-1].id


def next_rows(tenant_id: int | str, only: Filter, last: str) -> list[Entry]:
    return list(entries(tenant_id, only).filter(id__gt=last).order_by("id").defer("effective")[:EXPORT_CHUNK])


def cells(row: Entry) -> list[Any]:
    return [
        row.id, row.created.isoformat(), "" if row.settled is None else row.settled.isoformat(), row.status, row.key_id,
        harmless(row.model), row.endpoint, harmless(row.request_id),
        row.prompt_tokens, row.completion_tokens, row.cached_tokens, f"{row.money:f}",
    ]


def harmless(text: str) -> str:
    """A spreadsheet runs a cell that begins like a formula, and these two are the caller's own words."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def written(rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def forget(*, before: date) -> int:
    """Delete single requests of days before this one; sums stay. Returns how many. Open ones stay too: a sweep will come for them."""
    gone: int = 0
    while True:
        old = Entry.objects.filter(id__lt=first_id(midnight(before))).exclude(status=Status.STARTED).order_by("id")
        ids = list(old.values_list("id", flat=True)[:FORGET_CHUNK])
        gone += Entry.objects.filter(id__in=ids).delete()[0]
        if len(ids) < FORGET_CHUNK:
            break
    Counter.objects.filter(period__lt=(before - COUNTERS_KEPT).isoformat()[:7]).delete()
    return gone


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def checked(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise BadRequest(f"limit must be between 1 and {MOST}, got {limit}.", "limit")
    return limit


def write_cursor(values: Sequence[Any]) -> str:
    text = json.dumps([value.isoformat() if isinstance(value, date) else value for value in values])
    return base64.urlsafe_b64encode(text.encode()).decode()


def read_cursor(text: str, length: int) -> list[str]:
    try:
        values = json.loads(base64.urlsafe_b64decode(text.encode()))
    except ValueError:
        values = None
    if not isinstance(values, list) or len(values) != length or not all(isinstance(value, str) for value in values):
        raise BadRequest("after is not what an earlier page said.", "after")
    return values
