"""Admission, in the process and over Valkey: the same answers to the same orders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from inference.errors import QuotaExceeded, RateLimited
from tenants.limits import Admission, Bounds, LocalAdmission, SharedAdmission, Spent
from tests.tenants.limits_world import NOON, Books, Clock, granted, order, refusal, wait_of


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def books() -> Books:
    return Books()


@pytest_asyncio.fixture(params=["process", "valkey"])
async def admission(request: pytest.FixtureRequest, clock: Clock, books: Books) -> AsyncIterator[Admission]:
    if request.param == "process":
        yield LocalAdmission(books, clock)
        return
    shared = SharedAdmission(books, request.getfixturevalue("valkey").url, clock=clock)
    await shared.redis.flushall()
    yield shared
    await shared.close()


async def test_without_limits_everything_passes_and_no_headers_are_sent(admission: Admission) -> None:
    assert [grant.headers for grant in await granted(admission, order(), 3)] == [{}, {}, {}]


async def test_requests_per_minute(admission: Admission, clock: Clock) -> None:
    asked = order(Bounds(requests_per_minute=3))
    clock.now = NOON + 0.4
    grants = await granted(admission, asked, 3)
    assert grants[-1].headers["x-ratelimit-remaining-requests"] == "0"
    error = await refusal(admission, order(Bounds(requests_per_minute=3)))
    assert isinstance(error, RateLimited)
    assert (error.code, error.status) == ("requests", 429)
    assert error.headers["Retry-After"] == "61"
    assert error.headers["x-ratelimit-limit-requests"] == "3"
    assert error.headers["x-ratelimit-reset-requests"] == "60.6s"


async def test_waiting_as_told_makes_the_next_call_pass_and_a_moment_less_does_not(admission: Admission, clock: Clock) -> None:
    bounds = Bounds(requests_per_minute=2, tokens_per_minute=100)
    for after, tokens in ((0.0, 60), (7.3, 40)):
        clock.now = NOON + after
        await admission.admit(order(bounds, tokens=tokens))
    clock.now = NOON + 20
    error = await refusal(admission, order(bounds, tokens=80))
    wait = wait_of(error)
    clock.now = NOON + 20 + wait - 0.002
    assert await refusal(admission, order(bounds, tokens=80)) is not None
    clock.now = NOON + 20 + wait
    assert await refusal(admission, order(bounds, tokens=80)) is None


async def test_no_minute_holds_more_than_the_limit(admission: Admission, clock: Clock) -> None:
    """A token bucket would let twice as many pass within a minute."""
    admitted: list[float] = []
    for tenth in range(0, 1300, 7):
        clock.now = NOON + tenth / 10
        if await refusal(admission, order(Bounds(requests_per_minute=5))) is None:
            admitted.append(clock.now)
    assert len(admitted) == 15
    assert all(later - earlier > 60 for earlier, later in zip(admitted, admitted[5:], strict=False))


async def test_tokens_are_settled_to_the_real_number(admission: Admission) -> None:
    bounds = Bounds(tokens_per_minute=100)
    grant = await admission.admit(order(bounds, tokens=90))
    assert isinstance(await refusal(admission, order(bounds, tokens=20)), RateLimited)
    grant.hold.tokens, grant.hold.running = 15, False
    await admission.put([grant])
    after = await admission.admit(order(bounds, tokens=85))
    assert after.headers["x-ratelimit-remaining-tokens"] == "0"
    error = await refusal(admission, order(bounds, tokens=1))
    assert error is not None
    assert error.code == "tokens"


async def test_tokens_beyond_the_estimate_count_too(admission: Admission) -> None:
    bounds = Bounds(tokens_per_minute=100)
    grant = await admission.admit(order(bounds, tokens=20))
    grant.hold.tokens = 95
    await admission.put([grant])
    assert await refusal(admission, order(bounds, tokens=6)) is not None
    assert await refusal(admission, order(bounds, tokens=5)) is None


async def test_concurrency_frees_its_slot_when_the_request_ends(admission: Admission) -> None:
    bounds = Bounds(concurrency=2)
    first, _ = await granted(admission, order(bounds), 2)
    error = await refusal(admission, order(bounds))
    assert error is not None
    assert (error.code, wait_of(error)) == ("concurrency", 1)
    first.hold.running = False
    await admission.put([first])
    await admission.put([first])  # said twice, it frees one slot
    assert await refusal(admission, order(bounds)) is None
    assert await refusal(admission, order(bounds)) is not None


async def test_what_is_refused_consumes_nothing_anywhere(admission: Admission) -> None:
    """The tenant's limit refuses; the key's counters are as before."""
    key, tenant = Bounds(requests_per_minute=2, tokens_per_minute=1000, concurrency=2), Bounds(concurrency=1)
    grant = await admission.admit(order(key, tenant))
    for _ in range(5):
        assert await refusal(admission, order(key, tenant)) is not None
    grant.hold.running = False
    await admission.put([grant])
    second = await admission.admit(order(key, tenant))
    assert second.headers["x-ratelimit-remaining-requests"] == "0"
    assert second.headers["x-ratelimit-remaining-tokens"] == "980"


async def test_keys_of_a_tenant_share_its_limit_and_nothing_else(admission: Admission) -> None:
    tenant = Bounds(requests_per_minute=3)
    own = Bounds(requests_per_minute=2)
    assert [await refusal(admission, order(own, tenant, name=name)) is None for name in "abaabb"] == [True, True, True] + [False] * 3


async def test_budget_counts_what_is_settled_and_what_is_held(admission: Admission, books: Books) -> None:
    day = order().day
    books.spent["key:a"] = Spent("key:a", day, day_tokens=70, month_tokens=900)
    bounds = Bounds(tokens_per_day=100, tokens_per_month=1000)
    grant = await admission.admit(order(bounds, tokens=20))
    error = await refusal(admission, order(bounds, tokens=20))
    assert isinstance(error, QuotaExceeded)
    assert (error.code, error.headers["x-should-retry"]) == ("insufficient_quota", "false")
    assert "Retry-After" not in error.headers
    assert books.asked == 1  # the ledger is asked once a minute, not once a request
    await admission.drop([grant], {"key:a": Spent("key:a", day, day_tokens=75, month_tokens=905)})
    assert await refusal(admission, order(bounds, tokens=25)) is None
    assert isinstance(await refusal(admission, order(bounds, tokens=1)), QuotaExceeded)


async def test_budget_of_money_by_month(admission: Admission, books: Books) -> None:
    books.spent["tenant:1"] = Spent("tenant:1", order().day, month_cost=4_000_000_000)
    bounds = Bounds(cost_per_month=5_000_000_000)
    assert await refusal(admission, order(tenant=bounds, cost=1_000_000_000)) is None
    assert isinstance(await refusal(admission, order(tenant=bounds, cost=1)), QuotaExceeded)


async def test_a_budget_of_nothing_lets_nothing_pass(admission: Admission) -> None:
    assert isinstance(await refusal(admission, order(Bounds(tokens_per_day=0))), QuotaExceeded)


async def test_a_new_day_begins_with_a_new_budget(admission: Admission, books: Books, clock: Clock) -> None:
    bounds = Bounds(tokens_per_day=10)
    grant = await admission.admit(order(bounds, clock=clock))
    await admission.drop([grant], {"key:a": Spent("key:a", order(clock=clock).day, day_tokens=10, month_tokens=10)})
    assert await refusal(admission, order(bounds, clock=clock)) is not None
    clock.now += 24 * 3600
    assert await refusal(admission, order(bounds, clock=clock)) is None


async def test_totals_that_arrive_late_do_not_lower_a_counter(admission: Admission) -> None:
    bounds = Bounds(tokens_per_day=100)
    first, second = await granted(admission, order(bounds, tokens=1), 2)
    day = first.order.day
    await admission.drop([second], {"key:a": Spent("key:a", day, day_tokens=100, month_tokens=100)})
    await admission.drop([first], {"key:a": Spent("key:a", day, day_tokens=50, month_tokens=50)})
    assert isinstance(await refusal(admission, order(bounds, tokens=1)), QuotaExceeded)


async def test_asking_again_with_the_same_id_takes_nothing_more(admission: Admission) -> None:
    """A client library that lost the answer on the way repeats the call."""
    asked = order(Bounds(requests_per_minute=2, concurrency=1), id="same")
    await admission.admit(asked)
    grant = await admission.admit(asked)
    assert grant.headers["x-ratelimit-remaining-requests"] == "1"


async def test_the_longest_wait_is_told(admission: Admission, clock: Clock) -> None:
    bounds = Bounds(requests_per_minute=1, concurrency=1)
    await admission.admit(order(bounds))
    error = await refusal(admission, order(bounds))
    assert error is not None
    assert (error.code, wait_of(error)) == ("requests", 61)


@pytest.mark.parametrize("bounds", [
    Bounds(requests_per_minute=10), Bounds(concurrency=10), Bounds(tokens_per_minute=100), Bounds(tokens_per_day=100),
    Bounds(cost_per_month=70),
], ids=lambda bounds: next(iter(bounds.given())))
async def test_of_fifty_at_once_exactly_ten_pass(admission: Admission, bounds: Bounds) -> None:
    answers = await asyncio.gather(*(refusal(admission, order(bounds, tokens=10, cost=7)) for _ in range(50)))
    assert answers.count(None) == 10
