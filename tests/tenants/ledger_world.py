"""A tenant with a key, requests of it, and what must hold of the books whatever has happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.conf import settings

from tenants import selectors, services
from tenants.accounting import Accounting, Admitted
from tenants.caller import Caller
from tenants.models import Counter, Entry, Key, Limit, Price, Rollup, Status, Tenant
from tenants.threads import in_thread

MODEL = "m"


@dataclass(frozen=True)
class Customer:
    tenant: Tenant
    key: Key

    @property
    def caller(self) -> Caller:
        credential = selectors.credential(self.key.public_id)
        assert credential is not None
        return credential.caller


def make_customer(name: str = "Acme", **limits: Any) -> Customer:
    """`limits` are the key's."""
    assert settings.KEY_PEPPERS
    tenant = services.create_tenant(name=name)
    key, _ = services.create_key(tenant=tenant, name="first")
    if limits:
        Limit(tenant=tenant, key=key, **limits).save()
    return Customer(tenant, key)


def set_price() -> None:
    """Two per million prompt tokens, half for cached ones, eight per million of output."""
    Price(model=MODEL, input=Decimal(2), output=Decimal(8), cached=Decimal(1)).save()


async def admit(accounting: Accounting, caller: Caller, *, prompt: int = 10, most: int | None = 20, **more: Any) -> Admitted:
    given = {"model": MODEL, "endpoint": "chat", "request_id": "chatcmpl-1", "effective": {}} | more
    return await accounting.admit(caller, prompt_tokens=prompt, max_tokens=most, **given)


@asynccontextmanager
async def running(url: str | None = None) -> AsyncIterator[Accounting]:
    accounting = Accounting(url)
    await accounting.start()
    try:
        yield accounting
    finally:
        await accounting.stop()


async def entries() -> list[Entry]:
    return await in_thread(lambda: list(Entry.objects.order_by("id")))


async def entry(admitted: Admitted) -> Entry:
    return await in_thread(Entry.objects.get, id=admitted.entry.id)


def check_books() -> None:
    """Every sum that is kept equals the sum of the settled rows; no open row is in any."""
    rollups: dict[Any, list[int]] = defaultdict(lambda: [0] * 5)
    counters: dict[Any, list[int]] = defaultdict(lambda: [0] * 2)
    for row in Entry.objects.exclude(status=Status.STARTED):
        amounts = (1, row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.cost)
        add(rollups[row.tenant_id, row.day, row.key_id, row.model], amounts)
        for scope in (f"key:{row.key_id}", f"tenant:{row.tenant_id}"):
            for period in (row.day, row.day[:7]):
                add(counters[scope, period], (row.prompt_tokens + row.completion_tokens, row.cost))
    assert rollups == {
        (r.tenant_id, r.day.isoformat(), r.key_id, r.model): [r.requests, r.prompt_tokens, r.completion_tokens, r.cached_tokens, r.cost]
        for r in Rollup.objects.all()
    }
    assert counters == {(c.scope, c.period): [c.tokens, c.cost] for c in Counter.objects.all()}


def add(sums: list[int], amounts: tuple[int, ...]) -> None:
    for place, amount in enumerate(amounts):
        sums[place] += amount
