"""The ledger: one row per admitted request, settled exactly once, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest
from django.utils import timezone

from inference.errors import InternalError, QuotaExceeded, RateLimited, Unavailable
from tenants import accounting as accounting_module
from tenants.accounting import Accounting
from tenants.ledger import Outcome, book
from tenants.models import Status
from tenants.threads import in_thread
from tests.stores import Valkey
from tests.tenants.ledger_world import Customer, admit, check_books, entries, entry, make_customer, running, set_price


@pytest.fixture
def customer(database: str) -> Customer:
    set_price()
    return make_customer()


async def test_a_row_is_there_before_the_answer_and_settled_after_it(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        admitted = await admit(accounting, caller, effective={"temperature": {"value": 0.5, "source": "tenant"}})
        await admitted.written()
        row = await entry(admitted)
        assert (row.status, row.reserved_tokens, row.prompt_tokens, row.settled) == (Status.STARTED, 30, 10, None)
        assert row.effective == {"temperature": {"value": 0.5, "source": "tenant"}}
        await admitted.settle(Status.COMPLETED, completion_tokens=7, cached_tokens=4)
        await accounting.writer.flush()
        row = await entry(admitted)
    assert (row.status, row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (Status.COMPLETED, 10, 7, 4)
    assert row.cost == (6 * 2 + 4 * 1 + 7 * 8) * 1000  # billionths
    await in_thread(check_books)


async def test_only_the_first_settlement_counts(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        admitted = await admit(accounting, caller)
        await admitted.settle(Status.CANCELLED, completion_tokens=3)
        await admitted.settle(Status.COMPLETED, completion_tokens=20)
    assert [(row.status, row.completion_tokens) for row in await entries()] == [(Status.CANCELLED, 3)]
    await in_thread(check_books)


async def test_a_settlement_that_is_repeated_after_a_lost_commit_changes_nothing(customer: Customer) -> None:
    """As after a connection that broke during COMMIT: nobody knows whether it was, so it is written again."""
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        admitted = await admit(accounting, caller)
        await admitted.written()
        await admitted.settle(Status.COMPLETED, completion_tokens=5)
        await accounting.writer.flush()
        again = Outcome(admitted.entry.id, Status.FAILED, timezone.now(), 10, 9)
        told = await in_thread(book.settle, [again])
    assert told[f"key:{customer.key.public_id}"].day_tokens == 15
    assert [row.status for row in await entries()] == [Status.COMPLETED]
    await in_thread(check_books)


async def test_a_failure_without_a_token_is_not_billed(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        with pytest.raises(ValueError, match="node"):
            async with await admit(accounting, caller):
                raise ValueError("the node is gone")
    [row] = await entries()
    assert (row.status, row.prompt_tokens, row.cost) == (Status.FAILED, 0, 0)


async def test_whoever_leaves_is_settled_as_cancelled_with_what_was_sent(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)

    async def serve(accounting: Accounting) -> None:
        async with await admit(accounting, caller) as admitted:
            admitted.progress(6)
            await asyncio.sleep(60)

    async with running() as accounting:
        task = asyncio.create_task(serve(accounting))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        await accounting.writer.flush()
        assert not accounting.live
    [row] = await entries()
    assert (row.status, row.completion_tokens) == (Status.CANCELLED, 6)


@pytest.mark.parametrize("turns", range(6))
async def test_leaving_while_being_admitted_leaks_nothing(database: str, valkey: Valkey, turns: int) -> None:
    customer = await in_thread(make_customer, concurrency=1)
    caller = await in_thread(lambda: customer.caller)
    async with running(valkey.url) as accounting:
        task = asyncio.create_task(admit(accounting, caller))
        for _ in range(turns * 3):
            await asyncio.sleep(0)
        task.cancel()
        done = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(done, accounting_module.Admitted):
            await done.settle(Status.CANCELLED, completion_tokens=0)
        await asyncio.sleep(0.2)
        await (await admit(accounting, caller)).settle(Status.COMPLETED, completion_tokens=1)
    await in_thread(check_books)


async def test_budget_of_the_day_is_what_the_rows_have_used(database: str) -> None:
    customer = await in_thread(make_customer, tokens_per_day=100)
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        first = await admit(accounting, caller, prompt=10, most=60)
        with pytest.raises(QuotaExceeded):
            await admit(accounting, caller, prompt=10, most=60)
        await first.settle(Status.COMPLETED, completion_tokens=20)
        await accounting.writer.flush()
        await (await admit(accounting, caller, prompt=10, most=60)).settle(Status.COMPLETED, completion_tokens=60)
        with pytest.raises(QuotaExceeded):
            await admit(accounting, caller, prompt=1, most=0)
    async with running() as reborn:  # its counters are empty, the ledger's are not
        with pytest.raises(QuotaExceeded):
            await admit(reborn, caller, prompt=1, most=0)


async def test_slot_is_free_when_settle_is_done(database: str) -> None:
    customer = await in_thread(make_customer, concurrency=1)
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        for _ in range(5):
            await (await admit(accounting, caller)).settle(Status.COMPLETED, completion_tokens=1)


async def test_a_prompt_beyond_a_whole_minute_is_told_not_to_come_back(database: str) -> None:
    customer = await in_thread(make_customer, tokens_per_minute=100)
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        with pytest.raises(RateLimited) as caught:
            await admit(accounting, caller, prompt=101)
        assert caught.value.headers == {"x-should-retry": "false"}
        assert (await admit(accounting, caller, prompt=90, most=500)).entry.reserved_tokens == 100


async def test_what_a_database_cannot_hold_fails_alone(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)
    stranger = caller.__class__(**{**vars(caller), "key_id": "0" * 16})
    async with running() as accounting:
        bad, good = await asyncio.gather(admit(accounting, stranger), admit(accounting, caller, request_id="a\0b\ud800"))
        await good.written()
        with pytest.raises(InternalError):
            await bad.written()
        await bad.settle(Status.FAILED, completion_tokens=0)
        await good.settle(Status.COMPLETED, completion_tokens=1)
    assert [(row.request_id, row.status) for row in await entries()] == [("a\ufffdb?", Status.COMPLETED)]
    await in_thread(check_books)


async def test_a_full_queue_lets_nobody_begin(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        accounting.writer.most_unwritten = 0
        with pytest.raises(Unavailable):
            await admit(accounting, caller)
    assert await entries() == []


async def test_without_its_row_nothing_is_answered(customer: Customer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is away for longer than a caller should wait: a 503, and the row that comes late is settled as failed."""
    caller = await in_thread(lambda: customer.caller)
    monkeypatch.setattr(accounting_module, "WRITTEN_SECONDS", 0.05)
    accounting = Accounting()
    admitted = await admit(accounting, caller)
    with pytest.raises(Unavailable):
        await admitted.written()
    await admitted.settle(Status.FAILED, completion_tokens=0)
    accounting.writer.start()
    await accounting.stop()
    assert [row.status for row in await entries()] == [Status.FAILED]
