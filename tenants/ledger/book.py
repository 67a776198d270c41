"""The ledger's writes. Each is one transaction, and repeating one that may or may not have been committed changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from tenants.ledger.batch import Batch, Outcome
from tenants.limits.bounds import Spent
from tenants.models import Counter, Entry, Process, Rollup, Status

FAULTS = (Status.FAILED, Status.INTERRUPTED)
SETTLED_COLUMNS = ("status", "settled", "prompt_tokens", "completion_tokens", "cached_tokens", "cost")
SUMMED = ("requests", "failed", "prompt_tokens", "completion_tokens", "cached_tokens", "cost")


@dataclass
class Sums:
    """What rows come to, added up before it is written: one statement a batch, not one a row."""

    requests: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost: int = 0

    def add(self, row: Entry) -> None:
        self.requests += 1
        self.failed += row.status in FAULTS
        self.prompt_tokens += row.prompt_tokens
        self.completion_tokens += row.completion_tokens
        self.cached_tokens += row.cached_tokens
        self.cost += row.cost

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def write(batch: Batch, process: str) -> Mapping[str, Spent]:
    """All of the batch or nothing. Returns what the scopes of the rows that it settled have spent by now."""
    with transaction.atomic():
        if batch.beat:
            Process.objects.update_or_create(id=process, defaults={"beat": Now()})
        Entry.objects.bulk_create(batch.started, ignore_conflicts=True)
        note_progress(batch.progress)
        return settle(batch.outcomes)


def note_progress(sent: Mapping[str, int]) -> None:
    if sent:
        with connection.cursor() as cursor:
            statement = f"UPDATE {Entry._meta.db_table} SET completion_tokens = %s WHERE id = %s AND status = %s"
            cursor.executemany(statement, [(tokens, id, Status.STARTED) for id, tokens in sorted(sent.items())])


def settle(outcomes: Collection[Outcome]) -> Mapping[str, Spent]:
    """Rows that are still open get their outcome, and their sums go where sums are kept. Of those that are settled nothing changes.

    The rows are locked in the order of their ids, and so are the sums, so that two processes that settle wait for each other at most.
    """
    if not outcomes:
        return {}
    by_id = {outcome.id: outcome for outcome in outcomes}
    with transaction.atomic(savepoint=False):
        found = list(Entry.objects.select_for_update().filter(id__in=by_id).order_by("id").defer("effective"))
        rows = [settled(row, by_id[row.id]) for row in found if row.status == Status.STARTED]
        if rows:
            save_settled(rows)
            add_to_rollups(rows)
            add_to_counters(rows)
        return spent(newest_days(found))


def settled(row: Entry, outcome: Outcome) -> Entry:
    row.status, row.settled = outcome.status, outcome.at
    row.prompt_tokens, row.completion_tokens = outcome.prompt_tokens, outcome.completion_tokens
    row.cached_tokens = min(outcome.cached_tokens, outcome.prompt_tokens)
    row.cost = row.rates.cost(prompt=row.prompt_tokens, completion=row.completion_tokens, cached=row.cached_tokens)
    return row


def save_settled(rows: Sequence[Entry]) -> None:
    """Django's bulk_update would build a CASE of every row for every column; this is one prepared statement."""
    fields = [Entry._meta.get_field(column) for column in SETTLED_COLUMNS]
    statement = f"UPDATE {Entry._meta.db_table} SET {', '.join(f'{column} = %s' for column in SETTLED_COLUMNS)} WHERE id = %s"
    values = [[*(f.get_db_prep_save(getattr(row, f.attname), connection) for f in fields), row.id] for row in rows]
    with connection.cursor() as cursor:
        cursor.executemany(statement, values)


def add_to_rollups(rows: Iterable[Entry]) -> None:
    sums: dict[tuple[int, str, str, str], Sums] = defaultdict(Sums)
    for row in rows:
        sums[row.tenant_id, row.day, row.key_id, row.model].add(row)
    values = [(*where, *(getattr(total, name) for name in SUMMED)) for where, total in sorted(sums.items())]
    increment(Rollup, ("tenant_id", "day", "key_id", "model"), SUMMED, values)


def add_to_counters(rows: Iterable[Entry]) -> None:
    sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
    for row in rows:
        for scope in scopes_of(row):
            sums[scope, row.day].add(row)
            sums[scope, row.day[:7]].add(row)
    values = [(*where, total.tokens, total.cost) for where, total in sorted(sums.items())]
    increment(Counter, ("scope", "period"), ("tokens", "cost"), values)


def increment(model: Any, where: Sequence[str], amounts: Sequence[str], values: Sequence[Sequence[Any]]) -> None:
    """Add amounts to the rows named by `where`, which are made where they are missing."""
    table, columns = model._meta.db_table, (*where, *amounts)
    rows = ", ".join(f"({', '.join(['%s'] * len(columns))})" for _ in values)
    sums = ", ".join(f"{name} = {table}.{name} + EXCLUDED.{name}" for name in amounts)
    statement = (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {rows} ON CONFLICT ({', '.join(where)}) DO UPDATE SET {sums}"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [value for row in values for value in row])


def newest_days(rows: Iterable[Entry]) -> Mapping[str, str]:
    """By scope, the last day that one of its rows counts on."""
    days: dict[str, str] = {}
    for row in rows:
        for scope in scopes_of(row):
            days[scope] = max(row.day, days.get(scope, ""))
    return days


def spent(days: Mapping[str, str]) -> Mapping[str, Spent]:
    """By scope, on the day given for it and in that day's month."""
    periods = set(days.values()) | {day[:7] for day in days.values()}
    found = {(row.scope, row.period): row for row in Counter.objects.filter(scope__in=list(days), period__in=periods)}
    nothing = Counter()
    result = {}
    for scope, day in days.items():
        of_day, of_month = found.get((scope, day), nothing), found.get((scope, day[:7]), nothing)
        result[scope] = Spent(scope, day, of_day.tokens, of_day.cost, of_month.tokens, of_month.cost)
    return result


def scopes_of(row: Entry) -> tuple[str, str]:
    return key_scope(row.key_id), tenant_scope(row.tenant_id)


def key_scope(public_id: str) -> str:
    return f"key:{public_id}"


def tenant_scope(tenant_id: int | str) -> str:
    return f"tenant:{tenant_id}"
