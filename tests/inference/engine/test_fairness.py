"""Tenants share an engine: in steps and tokens, on a tiny model. `benchmarks/fairness.py` measures the same in seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from inference.engine.engine import Engine
from tests.inference.engine.running import Answers, collect, prompt, request

BuildEngine = Callable[..., Engine]

LONG, SHORT = 200, 40  # prompt tokens
ROWS, CHUNK = 16, 64


@pytest.fixture
def engine(engine_on: BuildEngine) -> Engine:
    return engine_on(max_num_seqs=ROWS, prefill_chunk=CHUNK, prefill_chunk_idle=2 * CHUNK)


def flood(engine: Engine, tenant: str, count: int = 64, weight: float = 1.0, new: int = 300) -> None:
    for number in range(count):
        engine.add(request(f"{tenant}{number}", prompt(LONG, number), tenant=tenant, weight=weight, max_tokens=new, ignore_eos=True))


def steps_to_first_token(engine: Engine, name: str, answers: dict[str, Answers]) -> int:
    """Of a short request that is sent now."""
    engine.add(request(name, prompt(SHORT, len(answers)), tenant="light", max_tokens=3))
    steps = 0
    while not answers[name].choices:
        collect(engine, answers)
        steps += 1
    return steps


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_a_flood_delays_another_tenants_first_token_by_at_most_one_step(weight: float, engine: Engine) -> None:
    """That is the step which runs when the request comes: its own prompt is the next step, as on an idle engine."""
    answers: dict[str, Answers] = defaultdict(Answers)
    assert steps_to_first_token(engine, "idle", answers) == 1
    flood(engine, "heavy", weight=weight)
    for number in range(30):  # while the flood's prompts are computed, and when all its rows decode
        for _ in range(3):
            collect(engine, answers)
        assert steps_to_first_token(engine, f"light{number}", answers) == 1
    assert engine.scheduler.running == ROWS
    assert not any(answers[name].error for name in answers)


@pytest.mark.parametrize(("weights", "late"), [((3.0, 1.0), False), ((3.0, 1.0), True), ((1.0, 3.0), True), ((1.0, 1.0), True)])
def test_tokens_follow_the_weights(weights: tuple[float, float], late: bool, engine: Engine) -> None:
    """Also for a tenant that comes when the other one has all rows."""
    answers: dict[str, Answers] = defaultdict(Answers)
    flood(engine, "a", weight=weights[0])
    for _ in range(40 if late else 0):
        collect(engine, answers)
    flood(engine, "b", weight=weights[1])
    for _ in range(100):  # until the rows are shared out and the first prompts are computed
        collect(engine, answers)
    before = generated(answers)
    for _ in range(300):
        collect(engine, answers)
    gained = generated(answers) - before
    assert gained["a"] / gained["b"] == pytest.approx(weights[0] / weights[1], rel=0.1)


def generated(answers: dict[str, Answers]) -> Counter[str]:
    """Tokens by tenant, whose name is the request's first letter."""
    tokens: Counter[str] = Counter()
    for name, answer in answers.items():
        tokens[name[0]] += len(answer.tokens)
    return tokens
