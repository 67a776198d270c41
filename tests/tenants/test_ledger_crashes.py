"""The ledger through crashes: of the process, of the database, of Valkey. On SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.errors import RateLimited, Unavailable
from tenants.accounting import Accounting
from tenants.ledger import Batch, book
from tenants.ledger.sweep import sweep
from tenants.ledger.writer import Pulse
from tenants.models import Counter, Entry, Key, Process, Rollup, Status
from tenants.threads import in_thread
from tests.stores import Postgres, Valkey
from tests.tenants.ledger_world import Customer, admit, check_books, entries, make_customer, running, set_price
from tests.world import ROOT


@pytest.fixture
def customer(database: str) -> Customer:
    set_price()
    return make_customer()


async def test_at_start_the_rows_of_an_earlier_life_are_settled(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)
    dead = await crashed(caller, sent=9)
    async with running():
        pass
    rows = {row.id: row for row in await entries()}
    assert {row.status for row in rows.values()} == {Status.INTERRUPTED}
    assert [(rows[id].prompt_tokens, rows[id].completion_tokens) for id in dead] == [(10, 9), (0, 0)]
    await in_thread(check_books)


async def test_a_sweep_takes_the_dead_and_leaves_the_living(customer: Customer) -> None:
    caller = await in_thread(lambda: customer.caller)
    dead, living = await crashed(caller, sent=9), await crashed(caller, sent=9)
    long_ago = timezone.now() - timedelta(minutes=5)

    def age() -> None:
        process = Entry.objects.get(id=dead[0]).process
        Process.objects.filter(id=process).update(beat=long_ago)

    await in_thread(age)
    assert await in_thread(sweep, me="me") == 2
    assert await in_thread(sweep, me="me") == 0
    assert {row.id for row in await entries() if row.status == Status.STARTED} == set(living)
    await in_thread(check_books)


async def crashed(caller: Any, sent: int) -> list[str]:
    """The ids of two open rows of a process that is gone: one had sent something, one had not."""
    accounting = Accounting()
    accounting.writer.start()
    some, none = await admit(accounting, caller), await admit(accounting, caller)
    await asyncio.gather(some.written(), none.written())
    some.progress(sent)
    await accounting.checkpoint()
    await accounting.writer.flush()
    crash(accounting)
    return [some.entry.id, none.entry.id]


def crash(accounting: Accounting) -> None:
    """Nothing is flushed; what the database is doing at this moment may or may not be done."""
    for task in (accounting.writer.task, *accounting.tasks):
        if task is not None:
            task.cancel()
    accounting.writer.thread.submit(connections.close_all)
    accounting.writer.thread.shutdown(wait=True)


def test_who_was_cut_off_does_not_call_others_dead() -> None:
    pulse = Pulse()
    for second in (0, 5, 10, 28, 33):
        pulse.beat(second)
        assert not pulse.unbroken(30)
    for second in range(38, 59, 5):
        pulse.beat(second)
    assert pulse.unbroken(30)


async def test_a_commit_whose_answer_was_lost_is_repeated(customer: Customer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction is committed, and then the connection breaks before the process hears of it."""
    caller = await in_thread(lambda: customer.caller)
    write, written = book.write, set()

    def write_and_lose(batch: Batch, process: str) -> Any:
        told = write(batch, process)
        if id(batch) not in written:
            written.add(id(batch))
            raise OperationalError("server closed the connection unexpectedly")
        return told

    monkeypatch.setattr(book, "write", write_and_lose)
    async with running() as accounting:
        for _ in range(3):
            admitted = await admit(accounting, caller)
            await admitted.written()
            await admitted.settle(Status.COMPLETED, completion_tokens=2)
    assert [(row.status, row.completion_tokens) for row in await entries()] == [(Status.COMPLETED, 2)] * 3
    await in_thread(check_books)


async def test_valkey_that_comes_back_empty_is_told_what_is_held(database: str, valkey: Valkey) -> None:
    """Two run, Valkey is killed, one of them ends meanwhile; afterwards one slot of two is taken, and the budget is known."""
    customer = await in_thread(make_customer, concurrency=2, tokens_per_day=1000)
    caller = await in_thread(lambda: customer.caller)
    async with running(valkey.url) as accounting:
        first, second = await admit(accounting, caller), await admit(accounting, caller)
        valkey.kill()
        with pytest.raises(Unavailable):
            await admit(accounting, caller)
        await first.settle(Status.COMPLETED, completion_tokens=5)
        await accounting.writer.flush()
        valkey.start()
        await accounting.renew()
        third = await admit(accounting, caller)
        with pytest.raises(RateLimited) as caught:
            await admit(accounting, caller)
        assert caught.value.code == "concurrency"
        for admitted in (second, third):
            await admitted.settle(Status.COMPLETED, completion_tokens=5)
        await accounting.writer.flush()
        assert (await admit(accounting, caller, prompt=900)).grant.hold.tokens == 920
    await in_thread(check_books)


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_rows_outlive_a_restart_of_the_database(postgres: Postgres, postgres_database: str, how: str) -> None:
    """What begins while it is away is written when it is back, and so is what ends."""
    customer = await in_thread(make_customer)
    caller = await in_thread(lambda: customer.caller)
    async with running() as accounting:
        before = [await admit(accounting, caller) for _ in range(10)]
        await asyncio.gather(*(admitted.written() for admitted in before))
        (postgres.kill if how == "kill" else postgres.stop)()
        meanwhile = [await admit(accounting, caller) for _ in range(10)]
        for admitted in (*before, *meanwhile[:5]):
            await admitted.settle(Status.COMPLETED, completion_tokens=4)
        await asyncio.sleep(0.5)
        postgres.start()  # in this thread: the server ends with the one that started it
        await asyncio.gather(*(admitted.row for admitted in meanwhile))
        for admitted in meanwhile[5:]:
            await admitted.settle(Status.COMPLETED, completion_tokens=4)
        await accounting.writer.flush()
    rows = await entries()
    assert [(row.status, row.completion_tokens) for row in rows] == [(Status.COMPLETED, 4)] * 20
    await in_thread(check_books)


def test_a_killed_process_leaves_rows_that_a_sweep_settles_once(database: str) -> None:
    """kill -9 in the middle of twenty streams; every row that it said was written is settled with at least what it had noted."""
    customer = make_customer()
    command = [sys.executable, "-m", "tests.tenants.streamer", database, customer.key.public_id]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as streamer:
        assert streamer.stdout is not None
        ids = json.loads(streamer.stdout.readline())
        noted = json.loads(streamer.stdout.readline())
        streamer.kill()
    sweep(me="me", alone=True)
    rows = {row.id: row for row in Entry.objects.all()}
    assert set(ids) <= set(rows)
    assert {row.status for row in rows.values()} <= {Status.INTERRUPTED, Status.COMPLETED}
    assert all(rows[id].completion_tokens >= noted for id in ids)
    check_books()


STEP = st.one_of(
    st.tuples(st.just("admit"), st.integers(0, 1), st.integers(1, 50)),
    st.tuples(st.just("send"), st.integers(0, 9), st.integers(1, 30)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from([Status.COMPLETED, Status.CANCELLED, Status.FAILED])),
    st.tuples(st.just("pause"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("checkpoint"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 1), st.just(0)),
)


@given(st.lists(STEP, min_size=1, max_size=40))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_schedule_of_requests_and_crashes_leaves_each_row_settled_once(database: str, steps: list[Any]) -> None:
    """Two processes, one Valkey's worth of counters each; whatever was written before a crash is settled after it, and no more is."""
    for model in (Counter, Rollup, Entry, Process):
        model.objects.all().delete()
    key = Key.objects.select_related("tenant").first()
    customer = make_customer() if key is None else Customer(key.tenant, key)
    promised = asyncio.run(play(customer.caller, steps))
    rows = {row.id: row for row in Entry.objects.all()}
    assert set(promised) <= set(rows)
    assert all(row.status != Status.STARTED for row in rows.values())
    for id, (status, tokens) in promised.items():
        if status is not None:
            assert (rows[id].status, rows[id].completion_tokens) == (status, tokens)
    check_books()


async def play(caller: Any, steps: list[Any]) -> dict[str, tuple[str | None, int]]:
    """What each row was promised to be: (None, _) where a crash left that open."""
    processes = [started(), started()]
    live: list[Any] = []
    promised: dict[str, tuple[str | None, int]] = {}
    for verb, which, what in steps:
        if verb == "admit":
            admitted = await admit(processes[which], caller, most=what)
            await admitted.written()
            live.append(admitted)
            promised[admitted.entry.id] = (None, 0)
        elif verb == "send" and which < len(live):
            live[which].progress(live[which].sent + what)
        elif verb == "settle" and which < len(live):
            admitted = live.pop(which)
            await admitted.settle(what, completion_tokens=admitted.sent)
            promised[admitted.entry.id] = (what, admitted.sent)
        elif verb == "pause":
            await asyncio.sleep(which / 1000)
        elif verb == "checkpoint":
            await processes[which].checkpoint()
        elif verb == "crash":
            dead, processes[which] = processes[which], started()
            for id in dead.live:
                promised[id] = (None, 0)
            live = [admitted for admitted in live if admitted.accounting is not dead]
            await asyncio.to_thread(crash, dead)
    for process in processes:
        await process.stop()
    await in_thread(sweep, me="me", alone=True)
    return promised


def started() -> Accounting:
    accounting = Accounting()
    accounting.writer.start()
    return accounting
