"""Rows whose process is gone are settled by whoever is still there, with the tokens known to be sent."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from tenants.ledger import book
from tenants.ledger.batch import Outcome
from tenants.models import Entry, Process, Status

DEAD = timedelta(seconds=30)
CHUNK = 500


def sweep(*, me: str, alone: bool = False) -> int:
    """Settle the open rows of every process that has not said for `DEAD` that it lives; `alone`: of every process but this one.

    Returns the number of rows that were found. By the database's clock, so that those of the machines need not agree.
    """
    found = 0
    while True:
        with transaction.atomic():
            rows = list(orphans(me, alone)[:CHUNK])
            book.settle([interrupted(row) for row in rows])
        found += len(rows)
        if len(rows) < CHUNK:
            break
    forget_processes(me, alone)
    return found


def orphans(me: str, alone: bool) -> QuerySet[Entry]:
    """Locked, so that of two sweeps at once each takes the rows that the other leaves."""
    open_rows = Entry.objects.select_for_update(skip_locked=True).filter(status=Status.STARTED).exclude(process=me).order_by("id")
    return open_rows if alone else open_rows.exclude(process__in=living().values("id"))


def living() -> QuerySet[Process]:
    return Process.objects.filter(beat__gte=Now() - DEAD)


def interrupted(row: Entry) -> Outcome:
    """Of a request that is not known to have sent anything, not even the prompt is billed."""
    prompt = row.prompt_tokens if row.completion_tokens else 0
    return Outcome(row.id, Status.INTERRUPTED, timezone.now(), prompt, row.completion_tokens)


def forget_processes(me: str, alone: bool) -> None:
    gone = Process.objects.exclude(id=me)
    if not alone:
        gone = gone.exclude(beat__gte=Now() - DEAD)
    gone.delete()
