"""The counters in Valkey: that they agree with those in the process, and what only they can meet: leases, losses, other processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.errors import QuotaExceeded, RateLimited, Unavailable
from tenants.limits import Admission, Bounds, LocalAdmission, SharedAdmission, Spent
from tests.stores import Valkey
from tests.tenants.limits_world import NOON, Books, Clock, granted, order, refusal
from tests.world import ROOT

STEP = st.one_of(
    st.tuples(st.just("admit"), st.sampled_from("ab"), st.integers(1, 60)),
    st.tuples(st.just("wait"), st.floats(0, 45), st.just(0)),
    st.tuples(st.just("end"), st.integers(0, 20), st.integers(0, 80)),
    st.tuples(st.just("settle"), st.integers(0, 20), st.just(0)),
)
KEY_BOUNDS = Bounds(requests_per_minute=4, tokens_per_minute=150, concurrency=3, tokens_per_day=600)
TENANT_BOUNDS = Bounds(requests_per_minute=6, concurrency=4, tokens_per_month=900)


@given(st.lists(STEP, max_size=40))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_kinds_of_counters_agree_on_any_schedule(valkey: Valkey, steps: list[Any]) -> None:
    async def both() -> None:
        clock = Clock()
        shared = SharedAdmission(Books(), valkey.url, clock=clock, lease=1e6)
        await shared.redis.flushall()
        traces = [await trace(LocalAdmission(Books(), clock), clock, steps)]
        clock.now = NOON
        traces.append(await trace(shared, clock, steps))
        await shared.close()
        assert traces[0] == traces[1]

    asyncio.run(both())


async def trace(admission: Admission, clock: Clock, steps: list[Any]) -> list[Any]:
    """What a caller sees of a schedule. Time moves in whole milliseconds, as Valkey counts them."""
    grants, seen, settled = [], [], {"key:a": 0, "key:b": 0, "tenant:1": 0}
    for number, (verb, who, amount) in enumerate(steps):
        if verb == "wait":
            clock.now += round(who, 3)
        elif verb == "admit":
            asked = order(KEY_BOUNDS, TENANT_BOUNDS, name=who, tokens=amount, clock=clock, id=str(number))
            try:
                grants.append(await admission.admit(asked))
                seen.append(grants[-1].headers)
            except (RateLimited, QuotaExceeded) as error:
                seen.append((error.code, error.headers))
        elif who < len(grants) and verb == "end":
            grants[who].hold.running, grants[who].hold.tokens = False, amount
            await admission.put([grants[who]])
        elif who < len(grants):
            grant = grants.pop(who)
            for scope in grant.order.scopes:
                settled[scope.name] += grant.hold.tokens
            await admission.drop([grant], {
                name: Spent(name, grant.order.day, day_tokens=sum_, month_tokens=sum_) for name, sum_ in settled.items()
            })
    return seen


async def test_a_hold_that_nobody_renews_is_free_again(valkey: Valkey) -> None:
    clock = Clock()
    shared = SharedAdmission(Books(), valkey.url, clock=clock)
    await shared.redis.flushall()
    bounds = Bounds(concurrency=2, tokens_per_day=100)
    kept, _ = await granted(shared, order(bounds, tokens=50), 2)
    clock.now += 10
    await shared.put([kept])
    clock.now += 10
    assert await refusal(shared, order(bounds, tokens=50)) is None
    assert await refusal(shared, order(bounds, tokens=1)) is not None
    await shared.close()


async def test_counters_that_were_lost_are_stated_again(valkey: Valkey) -> None:
    shared = SharedAdmission(Books(), valkey.url)
    await shared.redis.flushall()
    bounds = Bounds(concurrency=1, requests_per_minute=100)
    grant = await shared.admit(order(bounds))
    await shared.redis.flushall()
    await shared.put([grant])
    error = await refusal(shared, order(bounds))
    assert error is not None
    assert error.code == "concurrency"
    await shared.close()


async def test_every_key_in_valkey_has_an_end(valkey: Valkey) -> None:
    shared = SharedAdmission(Books(), valkey.url)
    await shared.redis.flushall()
    grant = await shared.admit(order(Bounds(requests_per_minute=5, concurrency=2)))
    await shared.put([grant])
    keys = await shared.redis.keys("*")
    assert keys
    assert all([await shared.redis.ttl(key) > 0 for key in keys])
    await shared.close()


async def test_whom_nobody_can_count_may_not_pass(valkey: Valkey) -> None:
    shared = SharedAdmission(Books(), "redis://127.0.0.1:1/0")
    with pytest.raises(Unavailable):
        await shared.admit(order(Bounds(concurrency=1)))
    await shared.close()


RACERS = 4
LIMITS = {"requests_per_minute": 10, "concurrency": 10, "tokens_per_minute": 100, "tokens_per_day": 100, "cost_per_month": 70}


@pytest.mark.parametrize("limit", LIMITS)
def test_of_fifty_from_four_processes_exactly_ten_pass(valkey: Valkey, limit: str) -> None:
    with_flush(valkey)
    racers = [race(valkey, {limit: LIMITS[limit]}, calls) for calls in (13, 13, 12, 12)]
    admitted = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sum(admitted) == 10


def test_a_killed_process_gives_back_its_slots(valkey: Valkey) -> None:
    """It holds all ten, is killed, and they are free when its leases have ended."""
    with_flush(valkey)
    holder = race(valkey, {"concurrency": 10}, 20, "--stay")
    assert holder.stdout is not None
    assert json.loads(holder.stdout.readline()) == 10
    assert json.loads(race(valkey, {"concurrency": 10}, 5).communicate(timeout=60)[0]) == 0
    holder.kill()
    holder.communicate()
    end = time.monotonic() + 30
    while json.loads(race(valkey, {"concurrency": 10}, 1).communicate(timeout=60)[0]) == 0:
        assert time.monotonic() < end
    assert json.loads(race(valkey, {"concurrency": 10}, 20).communicate(timeout=60)[0]) in (9, 10)


def race(valkey: Valkey, bounds: dict[str, int], calls: int, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.tenants.racer", valkey.url, json.dumps(bounds), str(calls), *flags]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def with_flush(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
