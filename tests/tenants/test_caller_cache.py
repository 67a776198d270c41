from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from tenants.caller import Caller, Credential
from tenants.caller_cache import CallerCache


@dataclass
class Source:
    """Stands in for the database: every public id that starts with "k" is known. Counts, and waits when told to."""

    asked: list[str] = field(default_factory=list)
    gate: threading.Event | None = None
    fails: bool = False

    def load(self, public_id: str) -> Credential | None:
        self.asked.append(public_id)
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.fails:
            raise OSError("the database is away")
        return Credential(b"", 1, True, Caller("1", "acme", public_id, frozenset())) if public_id.startswith("k") else None


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_entry_lives_for_its_time_and_no_longer() -> None:
    source, clock = Source(), Clock()
    cache = CallerCache(source.load, seconds=0.5, clock=clock)
    for age in (0, 0.25, 0.499):
        clock.now = 100 + age
        assert cache.find("k1") is not None
    assert source.asked == ["k1"]
    clock.now = 100.5
    cache.find("k1")
    assert source.asked == ["k1", "k1"]


def test_the_time_runs_from_before_the_question() -> None:
    clock = Clock()

    def slow(public_id: str) -> Credential | None:
        clock.now += 0.4
        return Source().load(public_id)

    cache = CallerCache(slow, seconds=0.5, clock=clock)
    cache.find("k1")
    clock.now += 0.2
    assert cache.fresh("k1") is None


def test_an_unknown_id_is_remembered_too_until_it_is_known() -> None:
    source, clock = Source(), Clock()
    cache = CallerCache(source.load, seconds=0.5, clock=clock)
    assert [cache.find("u1"), cache.find("u1"), source.asked] == [None, None, ["u1"]]
    cache.load = lambda public_id: Source().load("k")
    clock.now += 1
    assert cache.find("u1") is not None
    assert cache.find("u1") is not None


def test_a_key_that_is_gone_is_gone() -> None:
    source, clock = Source(), Clock()
    cache = CallerCache(source.load, seconds=0.5, clock=clock)
    assert cache.find("k1") is not None
    cache.load = lambda public_id: None
    clock.now += 1
    assert cache.find("k1") is None
    assert cache.find("k1") is None


def test_it_is_bounded_and_a_flood_of_guesses_does_not_push_out_a_key() -> None:
    source = Source()
    cache = CallerCache(source.load, seconds=60, size=10)
    cache.find("k1")
    for guess in range(1000):
        cache.find(f"u{guess}")
    for key in range(2, 12):
        cache.find(f"k{key}")
    assert (len(cache.unknown.entries), len(cache.known.entries)) == (10, 10)
    asked = len(source.asked)
    cache.find("k11")
    assert len(source.asked) == asked


async def test_those_who_wait_for_the_same_id_share_one_question() -> None:
    source = Source(gate=threading.Event())
    cache = CallerCache(source.load, seconds=60)
    waiting = [asyncio.create_task(cache.afind(name)) for name in ["k1"] * 20 + ["k2"] * 20]
    await asyncio.sleep(0.05)
    source.gate.set()
    found = await asyncio.gather(*waiting)
    assert sorted(source.asked) == ["k1", "k2"]
    assert all(credential is not None for credential in found)
    assert cache.loading == {}


async def test_one_who_leaves_does_not_take_the_answer_along() -> None:
    source = Source(gate=threading.Event())
    cache = CallerCache(source.load, seconds=60)
    leaving, staying = (asyncio.create_task(cache.afind("k1")) for _ in range(2))
    await asyncio.sleep(0.05)
    leaving.cancel()
    await asyncio.sleep(0)
    source.gate.set()
    assert await staying is not None
    assert source.asked == ["k1"]


async def test_a_failure_reaches_everyone_who_waits_and_is_not_remembered() -> None:
    source = Source(gate=threading.Event(), fails=True)
    cache = CallerCache(source.load, seconds=60)
    waiting = [asyncio.create_task(cache.afind("k1")) for _ in range(3)]
    await asyncio.sleep(0.05)
    source.gate.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError] * 3
    source.fails = False
    assert await cache.afind("k1") is not None


def test_a_loop_that_ended_in_the_middle_leaves_no_trap() -> None:
    source = Source()
    cache = CallerCache(source.load, seconds=60)

    async def begin() -> None:
        cache.shared_fetch("k1")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    assert asyncio.run(cache.afind("k1")) is not None


@pytest.mark.parametrize("name", ["k1", "u1"])
def test_a_hit_asks_nobody_on_either_road(name: str) -> None:
    source = Source()
    cache = CallerCache(source.load, seconds=60)
    first = cache.find(name)
    assert asyncio.run(cache.afind(name)) is first
    assert source.asked == [name]


def test_what_may_not_be_old_is_asked_again() -> None:
    source, clock = Source(), Clock()
    cache = CallerCache(source.load, seconds=0.5, clock=clock)
    cache.find("k1")
    clock.now += 0.04
    cache.find("k1", 0.05)
    assert source.asked == ["k1"]
    clock.now += 0.02
    cache.find("k1")
    assert source.asked == ["k1"]
    cache.find("k1", 0.05)
    assert source.asked == ["k1", "k1"]
