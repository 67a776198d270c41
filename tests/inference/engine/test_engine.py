"""The engine's step on a tiny model: ends, choices, logprobs, aborts, faults, caches."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from inference.engine.engine import HOPELESS, Engine
from inference.engine.scheduler import Failed
from tests.inference.engine.running import Answers, collect, prompt, request, run, run_one
from tests.inference.engine.test_sampler import assert_rows_close, reference_row

BuildEngine = Callable[..., Engine]
Plant = Callable[[Any, str, Callable[..., bool]], None]
LOAD, ABORTS = 20, 500


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """A fault in an object's method, for the arguments of which a condition holds."""

    def planted(target: Any, method: str, condition: Callable[..., bool]) -> None:
        sound = getattr(target, method)

        def faulty(*arguments: Any, **named: Any) -> Any:
            if condition(*arguments, **named):
                raise RuntimeError("planted")
            return sound(*arguments, **named)

        monkeypatch.setattr(target, method, faulty)

    return planted


@pytest.fixture
def engine(engine_on: BuildEngine) -> Engine:
    return engine_on()


@pytest.fixture(scope="module")
def model_logits(tiny_model: Path) -> Callable[[list[int]], Tensor]:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64)

    def logits(ids: list[int]) -> Tensor:
        with torch.no_grad():
            result: Tensor = model(torch.tensor([ids])).logits[0]
        return result

    return logits


# ---- ends


def test_max_tokens(engine: Engine) -> None:
    answer = run_one(engine, prompt(5), temperature=0, max_tokens=7).choices[0]
    assert (len(answer.tokens), answer.finish_reason, answer.stop_reason) == (7, "length", None)


def test_max_model_len(engine_on: BuildEngine) -> None:
    answer = run_one(engine_on(max_model_len=64), prompt(60), temperature=0, max_tokens=1000).choices[0]
    assert (len(answer.tokens), answer.finish_reason) == (4, "length")


def test_a_prompt_one_short_of_the_model_length(engine_on: BuildEngine) -> None:
    assert len(run_one(engine_on(max_model_len=64), prompt(63), temperature=0, max_tokens=1000).tokens) == 1


ENDS: list[tuple[dict[str, Any], int | str]] = [
    ({"eos_token_ids": [3]}, 4),
    ({"stop_token_ids": [3]}, 4),
    ({"eos_token_ids": [3], "stop_token_ids": [3]}, 4),
    ({"eos_token_ids": [3], "ignore_eos": True}, 10),
    ({"eos_token_ids": [3], "stop_token_ids": [3], "ignore_eos": True}, 4),
]


@pytest.mark.parametrize(("stops", "length"), ENDS, ids=str)
def test_eos_and_stop_tokens(stops: dict[str, Any], length: int, engine: Engine) -> None:
    """EOS leaves the stop reason empty, also when it is listed as a stop token; the id that ended it is delivered."""
    free = run_one(engine, prompt(9), temperature=0, max_tokens=10).tokens
    assert free[3] not in free[:3], "the test needs an answer whose fourth token is new"
    at = {name: tuple(free[index] for index in value) if isinstance(value, list) else value for name, value in stops.items()}
    answer = run_one(engine, prompt(9), temperature=0, max_tokens=10, **at).choices[0]
    assert answer.tokens == free[:length]
    by_eos = "eos_token_ids" in stops and not stops.get("ignore_eos")
    expected = ("length", None) if length == 10 else ("stop", None if by_eos else free[3])
    assert (answer.finish_reason, answer.stop_reason) == expected


def test_min_tokens_bars_eos_and_stop_tokens(engine: Engine) -> None:
    free = run_one(engine, prompt(9), temperature=0, max_tokens=10).tokens
    answer = run_one(engine, prompt(9), temperature=0, max_tokens=10, min_tokens=6, eos_token_ids=(free[0],), stop_token_ids=(free[2],))
    tokens = answer.tokens
    assert len(tokens) >= 6
    assert not {free[0], free[2]} & set(tokens[:6])


# ---- choices


def test_choices_are_what_each_seed_gives_alone(engine: Engine) -> None:
    together = run_one(engine, prompt(40), n=4, seed=5, max_tokens=9)
    for index in range(4):
        alone = run_one(engine, prompt(40), seed=5 + index, max_tokens=9)
        assert together.choices[index].tokens == alone.tokens
    assert len({tuple(together.choices[index].tokens) for index in range(4)}) > 1


def test_the_prompt_of_several_choices_is_computed_once(engine: Engine) -> None:
    run_one(engine, prompt(100), n=4, seed=1, max_tokens=2)
    assert engine.scheduler.memory.counts.hit == 3 * 96


def test_a_seeded_sample_is_the_same_alone_and_among_others(engine_on: BuildEngine) -> None:
    alone = run_one(engine_on(), prompt(33), seed=3, temperature=1.2, top_p=0.9, max_tokens=20).tokens
    others = [request(f"o{n}", prompt(5 + 7 * n), max_tokens=10 + n, temperature=n % 3) for n in range(31)]
    engine = engine_on(prefill_chunk=50)
    among = run(engine, *others[:16], request("it", prompt(33), seed=3, temperature=1.2, top_p=0.9, max_tokens=20), *others[16:])
    assert among["it"].tokens == alone


# ---- logprobs


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 1, "temperature": 1.5, "top_k": 5}], ids=str)
def test_logprobs_against_float64(fields: dict[str, Any], engine: Engine, model_logits: Callable[[list[int]], Tensor]) -> None:
    answer = run_one(engine, prompt(20), logprobs=4, max_tokens=6, **fields).choices[0]
    logits = model_logits(prompt(20) + answer.tokens)
    assert len(answer.rows) == 6
    for position, (token, row) in enumerate(zip(answer.tokens, answer.rows, strict=True)):
        assert_rows_close(row, reference_row(logits[19 + position], token, 4))


@pytest.mark.parametrize("chunk", [7, 512])
@pytest.mark.parametrize("count", [0, 3, -1])
def test_prompt_logprobs(chunk: int, count: int, engine_on: BuildEngine, model_logits: Callable[[list[int]], Tensor]) -> None:
    """Also when the prompt is in the prefix cache, which has no logits."""
    engine, ids = engine_on(prefill_chunk=chunk, prefill_chunk_idle=chunk), prompt(40)
    run_one(engine, ids, max_tokens=1)
    asked, other = request("p", ids, prompt_logprobs=count), request("other", prompt(30, 1), prompt_logprobs=1)
    answers = run(engine, asked, other)
    logits = model_logits(ids)
    rows = answers["p"].prompt_rows or []
    assert len(rows) == 40
    assert rows[0] is None
    for position, row in enumerate(rows[1:], start=1):
        assert_rows_close(row, reference_row(logits[position - 1], ids[position], count))
    assert len(answers["other"].prompt_rows or []) == 30


# ---- aborts


def test_an_abort_ends_with_a_final_output_and_frees_the_row(engine: Engine) -> None:
    engine.add(request("a", prompt(20), max_tokens=100))
    engine.add(request("b", prompt(20), max_tokens=5))
    answers: dict[str, Answers] = defaultdict(Answers)
    collect(engine, answers)
    engine.abort(["a", "nobody"])
    assert engine.scheduler.running <= 1
    while engine.busy:
        collect(engine, answers)
    assert answers["a"].choices[0].finish_reason == "abort"
    assert answers["b"].choices[0].finish_reason == "length"
    assert engine.scheduler.memory.usage() == 0


@pytest.mark.parametrize("kv", ["rows", "pages"])
def test_aborts_at_random_moments_change_nobody_else(kv: str, engine_on: BuildEngine) -> None:
    """In every phase: queued, in the middle of a prompt, decoding; with few rows and short pieces. The row is free at once."""
    engine = engine_on(kv=kv, max_num_seqs=6, prefill_chunk=16, prefill_chunk_idle=16)
    kept = {f"k{n}": {"ids": prompt(10 + 5 * n), "seed": n, "max_tokens": 15, "top_k": 20} for n in range(12)}
    alone = {name: run_one(engine, **fields).tokens for name, fields in kept.items()}
    generator = random.Random(0)
    answers: dict[str, Answers] = defaultdict(Answers)
    doomed: list[str] = []
    phases: Counter[str] = Counter()
    waiting = dict(kept)
    for number in range(LOAD + ABORTS):
        doomed.append(f"d{number}")
        engine.add(request(doomed[-1], prompt(generator.randrange(1, 80), number), max_tokens=50, n=generator.choice([1, 2])))
        if number % 40 == 0 and waiting:
            name, fields = waiting.popitem()
            engine.add(request(name, **fields))
        for _ in range(generator.randrange(3)):
            collect(engine, answers)
        if number >= LOAD:
            victim = doomed.pop(generator.randrange(len(doomed)))
            phases[phase(engine, victim)] += 1
            held = engine.requests[victim].choices if victim in engine.requests else []
            engine.abort([victim])
            assert not {*held} & {*engine.scheduler.running_sequences()}
            assert all(choice.place is None for choice in held)
    assert min(phases[name] for name in ("queued", "prompt", "decoding")) > 10
    engine.abort(doomed)
    assert {seq.request.id for seq in engine.scheduler.running_sequences()} <= kept.keys()
    while engine.busy:
        collect(engine, answers)
    assert {name: answers[name].tokens for name in kept} == alone
    assert all(answer.finished for answer in answers.values())
    assert len(answers) == LOAD + ABORTS + len(kept)
    assert engine.scheduler.memory.usage() == 0
    assert engine.requests == {}


def phase(engine: Engine, request_id: str) -> str:
    """Where the request's first choice stands."""
    if request_id not in engine.requests:
        return "over"
    first = engine.requests[request_id].choices[0]
    if first not in engine.scheduler.running_sequences():
        return "queued"
    return "decoding" if first.decoding else "prompt"


def store_of(engine: Engine) -> Any:
    """The tensors behind the scheduler's memory."""
    return engine.scheduler.memory


# ---- faults


def test_a_request_that_cannot_be_sampled_fails_alone(engine: Engine) -> None:
    answers = run(engine, request("good", prompt(9), max_tokens=5, temperature=0), request("bad", prompt(9), logit_bias={10**6: 1.0}))
    assert answers["bad"].error is not None
    assert answers["bad"].choices[0].finish_reason == "error"
    assert answers["good"].choices[0].finish_reason == "length"


def test_a_failed_forward_fails_its_batch_and_the_engine_goes_on(engine: Engine) -> None:
    before = run_one(engine, prompt(9), max_tokens=5, temperature=0).tokens
    answers = run(engine, request("bad", [10**6], max_tokens=5), request("mate", prompt(9), max_tokens=5))
    assert {answer.choices[0].finish_reason for answer in answers.values()} == {"error"}
    assert engine.scheduler.memory.usage() == 0
    assert run_one(engine, prompt(9), max_tokens=5, temperature=0).tokens == before


GOOD: dict[str, dict[str, Any]] = {f"good{n}": {"ids": prompt(9 + 30 * n), "max_tokens": 150, "temperature": 0} for n in range(4)}


@pytest.mark.parametrize("kv", ["rows", "pages"])
@pytest.mark.parametrize("seam", ["being_computed", "can_open", "open", "can_grow", "grow"])
def test_memory_that_fails_for_one_request_fails_that_one(seam: str, kv: str, engine_on: BuildEngine, plant: Plant) -> None:
    """In scheduling, before a step: nobody else notices."""
    engine = engine_on(kv=kv)
    alone = {name: run_one(engine, **fields).tokens for name, fields in GOOD.items()}
    plant(engine.scheduler.memory, seam, lambda seq: seq.request.id == "bad")
    answers = run(engine, *(request(name, **fields) for name, fields in GOOD.items()), request("bad", prompt(20), max_tokens=150))
    assert answers["bad"].error == "The engine failed: planted"
    assert {name: answers[name].tokens for name in GOOD} == alone
    assert engine.scheduler.memory.usage() == 0
    assert engine.requests == {}


def test_a_row_that_cannot_give_way_fails_alone(engine_on: BuildEngine, plant: Plant) -> None:
    """Room for two of the tenant's rows; a lighter tenant takes the newest, whose prefix cannot be kept."""
    engine = engine_on(kv="rows", max_num_seqs=2)
    old, light = {"ids": prompt(20), "max_tokens": 40, "temperature": 0}, {"ids": prompt(30), "max_tokens": 40, "temperature": 0}
    alone = {"old": run_one(engine, **old).tokens, "light": run_one(engine, **light).tokens}
    answers: dict[str, Answers] = defaultdict(Answers)
    engine.add(request("old", **old, tenant="heavy"))
    engine.add(request("bad", prompt(25), max_tokens=40, tenant="heavy"))
    for _ in range(5):
        collect(engine, answers)
    plant(store_of(engine).kept, "keep", lambda seq: seq.request.id == "bad")
    engine.add(request("light", **light, tenant="light"))
    while engine.busy:
        collect(engine, answers)
    assert answers["bad"].error == "The engine failed: planted"
    assert {name: answers[name].tokens for name in alone} == alone


@pytest.mark.parametrize("at_the_end", [False, True])
def test_memory_that_fails_after_a_step_fails_who_has_begun(at_the_end: bool, engine_on: BuildEngine, plant: Plant) -> None:
    """What the step gave is lost then; what waits is run."""
    engine = engine_on(kv="rows", max_num_seqs=2)
    names = list(GOOD)
    alone = {name: run_one(engine, **fields).tokens for name, fields in GOOD.items()}
    plant(store_of(engine).kept, "keep", lambda seq: seq.request.id == names[0] and seq.finished == at_the_end)
    answers = run(engine, *(request(name, **fields) for name, fields in GOOD.items()))
    assert {name: answer.error is None for name, answer in answers.items()} == dict(zip(names, [False, False, True, True], strict=True))
    assert {name: answers[name].tokens for name in names[2:]} == {name: alone[name] for name in names[2:]}
    assert engine.requests == {}
    assert engine.scheduler.running == store_of(engine).used == 0


def test_scheduling_that_fails_ends_all_that_have_begun_and_then_all(engine_on: BuildEngine, plant: Plant) -> None:
    engine = engine_on(max_num_seqs=2)
    answers: dict[str, Answers] = defaultdict(Answers)
    for name, fields in GOOD.items():
        engine.add(request(name, **fields))
    collect(engine, answers)
    plant(engine.scheduler, "_ranked", lambda: True)
    collect(engine, answers)
    assert sorted(name for name, answer in answers.items() if answer.error) == ["good0", "good1"]
    collect(engine, answers)
    assert all(answers[name].error for name in GOOD)
    assert not engine.busy
    assert engine.scheduler.memory.usage() == 0


def test_an_engine_that_can_do_no_step_gives_up(engine: Engine, plant: Plant) -> None:
    """Its process ends then, and the parent starts another one. A step that works in between begins the count anew."""
    broken = True
    plant(engine.executor, "run", lambda plan: broken)
    for _ in range(HOPELESS - 1):
        assert run_one(engine, prompt(5)).error == "The engine failed: planted"
    broken = False
    assert run_one(engine, prompt(5), max_tokens=1).error is None
    broken = True
    for _ in range(HOPELESS - 1):
        run_one(engine, prompt(5))
    with pytest.raises(Failed, match="planted"):
        run_one(engine, prompt(5))


def test_what_could_not_be_copied_is_not_found_in_the_prefix_cache(engine_on: BuildEngine, plant: Plant) -> None:
    engine = engine_on(kv="rows")
    store = store_of(engine)
    plant(store.kept, "_copy_out", lambda *_: True)
    assert run_one(engine, prompt(100), max_tokens=5).error is not None
    assert len(store.kept.index) == 0
    assert len(store.kept.free) == len(store.kept.pool)
    assert store.used == 0


def test_an_id_that_is_running_is_refused(engine: Engine) -> None:
    engine.add(request("same", prompt(9), max_tokens=5))
    engine.add(request("same", prompt(9), max_tokens=5))
    outputs = engine.step()
    assert [output.error is None for output in outputs] == [False, True]


def test_memory_is_flat_over_many_requests(engine_on: BuildEngine) -> None:
    engine = engine_on(kv="rows", kv_bytes=2 << 20)
    for number in range(300):
        run(engine, *(request(f"{number}-{n}", prompt(3 + (number * 7 + n) % 60, number), max_tokens=3) for n in range(4)))
    store = store_of(engine)
    assert store.used == 0
    assert store.buckets == {}
    assert store.computing == {}
    assert len(store.kept.index) + len(store.kept.free) == len(store.kept.pool)
    assert engine.scheduler.tenants == {} or all(tenant.idle for tenant in engine.scheduler.tenants.values())


# ---- the prefix cache


def test_a_warm_prefix_costs_only_its_last_block(engine: Engine) -> None:
    ids = prompt(100)
    assert run_one(engine, ids, max_tokens=1).cached_tokens == 0
    assert run_one(engine, ids, max_tokens=1).cached_tokens == 96
    assert run_one(engine, [*ids, 5, 6, 7], max_tokens=1).cached_tokens == 96
    assert run_one(engine, ids[:64], max_tokens=1).cached_tokens == 48
    assert run_one(engine, [9, *ids[1:]], max_tokens=1).cached_tokens == 0


def test_what_was_generated_is_kept_for_the_next_turn(engine: Engine) -> None:
    ids = prompt(40)
    answer = run_one(engine, ids, temperature=0, max_tokens=30).tokens
    assert run_one(engine, [*ids, *answer, 5, 6], max_tokens=1).cached_tokens == 64


def test_salts_share_nothing(engine: Engine) -> None:
    ids = prompt(100)
    for salt in ("a", "b", None, ""):
        assert run_one(engine, ids, max_tokens=1, cache_salt=salt).cached_tokens == 0
        assert run_one(engine, ids, max_tokens=1, cache_salt=salt).cached_tokens == 96


def test_requests_that_share_a_prefix_and_arrive_together_compute_it_once(engine: Engine) -> None:
    shared = prompt(96)
    answers = run(engine, *(request(f"r{n}", [*shared, 5 + n, 6, 7], max_tokens=2) for n in range(8)))
    assert sorted(answer.cached_tokens for answer in answers.values()) == [0] + [96] * 7


def test_the_least_recently_used_goes_first(engine_on: BuildEngine) -> None:
    """Room for 512 tokens of rows, and a quarter of it, 8 blocks, for prefixes."""
    engine = engine_on(kv="rows", kv_bytes=512 * 2 * 2 * 16 * 4, max_model_len=512)
    first, second, third = (prompt(49, seed) for seed in range(3))
    for ids in (first, second, first, third):
        run_one(engine, ids, max_tokens=1)
    assert run_one(engine, first, max_tokens=1).cached_tokens == 48
    assert run_one(engine, second, max_tokens=1).cached_tokens < 48
    assert engine.scheduler.memory.counts.evicted > 0


def test_pages_are_shared_and_come_back(engine_on: BuildEngine) -> None:
    """What a page's owners count adds up: after many requests all pages are free or the index's."""
    engine, shared = engine_on(kv="pages", kv_bytes=2048 * 2 * 2 * 16 * 4), prompt(300)
    first = run_one(engine, shared, temperature=0, max_tokens=5)
    for number in range(60):
        again = request("again", shared, temperature=0, max_tokens=5)
        answers = run(engine, again, request("other", prompt(3 + 37 * number % 400, number), max_tokens=3), request("n", [*shared, 5], n=2))
        assert answers["again"].tokens == first.tokens
        assert answers["again"].cached_tokens == 256
    store = store_of(engine)
    kept = [block.page for block in store.index.oldest()]
    assert sorted([*store.free, *kept]) == list(range(1, store.count))
    assert store.owners == dict.fromkeys(kept, 1)


def test_without_the_cache_nothing_is_kept(engine_on: BuildEngine) -> None:
    engine = engine_on(prefix_cache=False)
    for _ in range(2):
        assert run_one(engine, prompt(100), max_tokens=1).cached_tokens == 0
