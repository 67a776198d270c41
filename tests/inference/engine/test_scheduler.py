"""Who runs next: shares, order, memory, newcomers; with sequences that need no model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from inference.engine.memory import CacheCounts
from inference.engine.request import Request, Sequence
from inference.engine.scheduler import Limits, Plan, Scheduler
from tests.inference.engine.running import request


class Slots:
    """Memory that counts tokens."""

    def __init__(self, tokens: int = 1 << 30) -> None:
        self.counts = CacheCounts()
        self.tokens = tokens
        self.held: dict[Sequence, int] = {}

    def fits(self, seq: Sequence, need: int) -> bool:
        return sum(self.held.values()) - self.held.get(seq, 0) + need <= self.tokens

    def can_open(self, seq: Sequence) -> bool:
        return self.fits(seq, len(seq.ids) + 1)

    def open(self, seq: Sequence) -> int:
        self.held[seq] = len(seq.ids) + 1
        return 0

    def can_grow(self, seq: Sequence) -> bool:
        return self.fits(seq, len(seq.ids) + 1)

    def grow(self, seq: Sequence) -> None:
        self.held[seq] = len(seq.ids) + 1

    def keep(self, seq: Sequence) -> None: ...

    def close(self, seq: Sequence) -> None:
        del self.held[seq]

    def being_computed(self, seq: Sequence) -> bool:
        return False

    def usage(self) -> float:
        return sum(self.held.values()) / self.tokens


class World:
    """A scheduler and the rest of an engine's step, with a token per sequence and no model."""

    def __init__(self, memory: Slots | None = None, **limits: Any) -> None:
        self.memory = memory or Slots()
        self.scheduler = Scheduler(Limits(**{"max_rows": 8, "max_len": 10_000, "chunk": 64, "chunk_idle": 128, **limits}), self.memory)
        self.now = 0.0
        self.generated: Counter[str] = Counter()
        self.finished: list[str] = []

    def add(self, name: str, prompt: int = 8, new: int = 10, **fields: Any) -> Request:
        added = Request(request(name, list(range(prompt)), max_tokens=new, **fields), arrived=self.now)
        self.scheduler.add(added)
        return added

    def step(self) -> Plan:
        plan = self.scheduler.schedule(self.now)
        assert len(set(plan.sequences)) == len(plan.sequences), "a sequence twice in a step"
        assert self.memory.held.keys() >= set(plan.sequences), "a sequence without memory in a step"
        self.now += 0.1
        for seq in plan.sampling:
            seq.computed = len(seq.ids)
            seq.append(1, 10_000)
            self.generated[seq.request.tenant] += 1
        for work in plan.prefill:
            if work.seq.pending != 1 or work.seq.computed < work.seq.request.prompt_len:
                work.seq.computed += work.count
        self.scheduler.settle(plan.tokens_by_tenant())
        for seq in plan.sequences:
            if seq.finished:
                self.finished.append(seq.request.id)
                self.scheduler.finish(seq)
        return plan

    def run(self, steps: int = 10_000) -> None:
        for _ in range(steps):
            if not self.step():
                return


def names(plan: Plan) -> list[str]:
    return [seq.request.id for seq in plan.sequences]


def test_first_in_first_out_within_a_tenant() -> None:
    world = World(max_rows=1)
    for number in range(5):
        world.add(f"r{number}", new=2)
    world.run()
    assert world.finished == ["r0", "r1", "r2", "r3", "r4"]


def test_a_request_joins_at_the_next_step_and_leaves_at_its_last() -> None:
    world = World()
    world.add("long", new=20)
    world.step()
    world.add("short", new=2)
    assert names(world.step()) == ["long", "short"]
    assert names(world.step()) == ["long", "short"]
    assert names(world.step()) == ["long"]


def test_a_lower_priority_value_goes_first() -> None:
    world = World(max_rows=1)
    for name, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 0)):
        world.add(name, new=1, priority=priority)
    world.run()
    assert world.finished == ["c", "a", "d", "b"]


def test_nobody_waits_for_ever_behind_higher_priorities() -> None:
    world = World(max_rows=1, patience_s=2.0)
    world.add("humble", priority=9, new=1)
    for number in range(100):
        world.add(f"urgent{number}", priority=0, new=1)
    world.run(30)
    assert "humble" in world.finished


def test_long_prompts_are_computed_in_pieces_beside_the_decoding_rows() -> None:
    world = World(chunk=16, chunk_idle=32)
    world.add("decoding", new=50)
    world.step()
    long = world.add("long", prompt=60)
    pieces = []
    while long.choices[0].generated == 0:
        plan = world.step()
        assert [seq.request.id for seq in plan.decode] == ["decoding"]
        pieces += [work.count for work in plan.prefill]
    assert pieces == [16, 16, 16, 12]


def test_an_idle_engine_takes_larger_pieces() -> None:
    world = World(chunk=16, chunk_idle=32)
    world.add("long", prompt=60)
    assert [work.count for work in world.step().prefill] == [32]


def flood(world: World, tenant: str, count: int = 200, new: int = 20, weight: float = 1.0) -> None:
    for number in range(count):
        world.add(f"{tenant}{number}", new=new, tenant=tenant, weight=weight)


@pytest.mark.parametrize(("weights", "rows"), [((3, 1), 8), ((1, 1), 8), ((3, 1), 32), ((1, 1), 3)])
def test_tokens_follow_the_weights(weights: tuple[int, int], rows: int) -> None:
    world = World(max_rows=rows)
    flood(world, "a", weight=weights[0], count=2000)
    for _ in range(20):
        world.step()
    flood(world, "b", weight=weights[1], count=2000)
    world.generated.clear()
    world.run(600)
    share = world.generated["a"] / world.generated["b"]
    assert share == pytest.approx(weights[0] / weights[1], rel=0.1)


def test_a_newcomer_is_computed_in_a_step_of_its_own_at_once() -> None:
    world = World()
    flood(world, "a", count=64)
    world.run(5)
    world.add("light", tenant="b", prompt=50)
    assert names(world.step()) == ["light"]
    assert "light" in names(world.step())


def test_newcomers_do_not_hold_up_everybody() -> None:
    """Between two of them comes a step with the decoding rows."""
    world = World(max_rows=64)
    world.add("busy", new=100, tenant="a")
    world.run(3)
    for number in range(10):
        world.add(f"light{number}", tenant=f"t{number}", prompt=50)
    decoded = sum("busy" in names(world.step()) for _ in range(10))
    assert decoded >= 5


def test_one_tenants_flood_does_not_keep_its_rows_from_another() -> None:
    world = World(max_rows=8)
    flood(world, "a", count=64, new=1000)
    world.run(10)
    flood(world, "b", count=4, new=1000)
    world.run(10)
    assert {tenant: len(state.running) for tenant, state in world.scheduler.tenants.items()} == {"a": 4, "b": 4}


def test_short_memory_preempts_the_newest_and_all_end() -> None:
    world = World(memory=Slots(100))
    for number in range(6):
        world.add(f"r{number}", prompt=10, new=60)
    world.run()
    assert world.scheduler.preemptions > 0
    assert sorted(world.finished) == [f"r{number}" for number in range(6)]
    assert world.finished[0] == "r0"
    assert world.memory.held == {}


def test_what_is_finished_is_forgotten() -> None:
    world = World()
    waiting = [world.add(f"r{number}") for number in range(20)]
    world.step()
    for added in waiting:
        world.scheduler.finish(added.choices[0])
    assert not world.step()
    assert world.scheduler.running == world.scheduler.waiting == 0
    assert world.scheduler.tenants == {}


def test_a_queue_keeps_nothing_of_those_that_left_it() -> None:
    """Also where they stand behind one that waits on."""
    world = World(max_rows=1)
    world.add("runs", new=10_000)
    world.step()
    world.add("waits", priority=-1)
    for number in range(1000):
        world.scheduler.finish(world.add(f"r{number}").choices[0])
    tenant = world.scheduler.tenants[""]
    assert tenant.waiting == 1
    assert max(len(tenant._by_priority), len(tenant._by_arrival)) < 100
    world.run(3)
    assert tenant.head(world.now).request.id == "waits"


def test_other_choices_start_when_the_prompt_is_computed() -> None:
    world = World()
    asked = world.add("r", n=3)
    assert len(world.step().sequences) == 1
    world.scheduler.release_siblings(asked)
    world.scheduler.release_siblings(asked)
    assert len(world.step().sequences) == 3


def test_a_weight_must_be_positive() -> None:
    with pytest.raises(ValueError, match="weight"):
        World().add("r", weight=0)


def test_whose_prompt_is_in_a_step_does_not_give_way_in_it() -> None:
    """Another choice of the first tenant waits beside its first when the others come: more rows than its share."""
    world = World(max_rows=4, chunk=1000, chunk_idle=1000)
    for number in range(6):
        world.add(f"r{number}", tenant=f"t{number}", prompt=5)
    first = world.add("two", tenant="two", n=2)
    world.step()
    world.scheduler.release_siblings(first)
    world.run()
    assert len(world.finished) == 8


@pytest.mark.parametrize("seed", range(20))
def test_every_step_of_a_crowd_can_be_run(seed: int) -> None:
    """Tenants of all weights and sizes come and go, memory and rows are short; `World.step` looks at each step."""
    chance = random.Random(seed)
    world = World(memory=Slots(400), max_rows=6, chunk=32, chunk_idle=64)
    asked = 0
    for number in range(120):
        choices = chance.choice([1, 1, 2, 3])
        tenant = f"t{chance.randrange(8)}"
        added = world.add(f"r{number}", prompt=chance.randrange(1, 90), new=chance.randrange(1, 40), tenant=tenant, n=choices)
        world.scheduler.release_siblings(added)
        asked += choices
        for _ in range(chance.randrange(4)):
            world.step()
    world.run()
    assert len(world.finished) == asked
    assert world.memory.held == {}
    assert world.scheduler.preemptions > 0
