"""The scripted engine: what a script says, under the real scheduler and the real ends."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from typing import Any

import pytest

from inference.engine.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.load import load_engine
from inference.engine.scripted import parse
from inference.errors import BadRequest
from tests.inference.engine.running import Answer, Answers, collect, request, run, run_one
from tests.world import TOKENIZERS

EOS = 258


@pytest.fixture
def engine() -> Engine:
    engine, info = load_engine(EngineConfig(engine="scripted", tokenizer=str(TOKENIZERS / "t1")))
    assert (info.vocab_size, info.eos_token_ids, info.max_model_len) == (266, [EOS], 512)
    return engine


def play(engine: Engine, script: Any, **fields: Any) -> Answers:
    return run_one(engine, [72, 105], script=script, **{"max_tokens": 50, "eos_token_ids": (EOS,), **fields})


def test_steps_are_outputs(engine: Engine) -> None:
    answers = play(engine, [{"ids": [10]}, {"ids": []}, {"ids": [20, 21], "finish": "stop", "stop_reason": "x"}])
    assert answers.choices[0] == Answer([10, 20, 21], [], "stop", "x")
    assert answers.outputs == 2


def test_a_finish_without_ids(engine: Engine) -> None:
    answers = play(engine, [{"ids": [10]}, {"ids": [], "finish": "length"}])
    assert (answers.choices[0].tokens, answers.choices[0].finish_reason, answers.outputs) == ([10], "length", 2)


def test_a_script_may_be_text(engine: Engine) -> None:
    assert play(engine, json.dumps([{"ids": [7], "finish": "stop"}])).tokens == [7]


def test_one_list_per_choice(engine: Engine) -> None:
    answers = play(engine, {"choices": [[{"ids": [1], "finish": "stop"}], [{"ids": [2], "finish": "length"}]]}, n=2)
    ends = {index: (answer.tokens, answer.finish_reason) for index, answer in answers.choices.items()}
    assert ends == {0: ([1], "stop"), 1: ([2], "length")}


def test_the_last_step_repeats_until_max_tokens(engine: Engine) -> None:
    assert play(engine, [{"ids": [1]}, {"ids": [2, 3]}], max_tokens=6).choices[0] == Answer([1, 2, 3, 2, 3, 2], [], "length", None)


def test_an_endless_script_ends_at_the_model_length(engine: Engine) -> None:
    assert len(play(engine, [{"ids": [1]}], max_tokens=10_000).tokens) == 510


def test_without_a_script_the_prompt_comes_back_then_eos(engine: Engine) -> None:
    assert play(engine, None).choices[0] == Answer([72, 105, EOS], [], "stop", None)


ENDS: list[tuple[dict[str, Any], list[int], str, int | None]] = [
    ({}, [1, 2, EOS], "stop", None),
    ({"stop_token_ids": (2,)}, [1, 2], "stop", 2),
    ({"stop_token_ids": (EOS,)}, [1, 2, EOS], "stop", None),
    ({"ignore_eos": True}, [1, 2, EOS, 3, 4], "length", None),
    ({"ignore_eos": True, "stop_token_ids": (EOS,)}, [1, 2, EOS], "stop", EOS),
    ({"max_tokens": 2}, [1, 2], "length", None),
    ({"min_tokens": 5}, [1, 2, EOS, 3, 4], "length", None),
    ({"min_tokens": 3}, [1, 2, EOS], "stop", None),
]


@pytest.mark.parametrize(("fields", "tokens", "finish", "reason"), ENDS, ids=str)
@pytest.mark.parametrize("at_once", [True, False])
def test_ends_apply_to_scripted_tokens(
    fields: dict[str, Any], tokens: list[int], finish: str, reason: int | None, at_once: bool, engine: Engine
) -> None:
    """In the middle of a step too: what follows the end is dropped."""
    ids = [1, 2, EOS, 3, 4]
    script = [{"ids": ids}] if at_once else [{"ids": [tid]} for tid in ids]
    answer = play(engine, script, **{"max_tokens": 5, "logprobs": 0, **fields}).choices[0]
    assert (answer.tokens, answer.finish_reason, answer.stop_reason) == (tokens, finish, reason)
    assert [row[0][0] for row in answer.rows] == tokens


def test_ids_outside_the_vocabulary_are_delivered(engine: Engine) -> None:
    assert play(engine, [{"ids": [99_999], "finish": "stop"}]).tokens == [99_999]


@pytest.mark.parametrize("ids", [[], [1, 2]])
def test_a_scripted_error_fails_the_request(ids: list[int], engine: Engine) -> None:
    answers = play(engine, [{"ids": [5]}, {"ids": ids, "finish": "error"}])
    assert answers.error is not None
    assert (answers.tokens, answers.choices[0].finish_reason) == ([5], "error")


def test_rows_are_as_given(engine: Engine) -> None:
    rows = [[[65, -4, 7], [66, "-Infinity", 1], [67, "NaN", None]]]
    (row,) = play(engine, [{"ids": [65], "rows": rows, "finish": "stop"}], logprobs=1).choices[0].rows
    assert row[:2] == [(65, -4, 7), (66, -math.inf, 1)]
    assert row[2][0] == 67
    assert math.isnan(row[2][1])
    assert row[2][2] is None


def test_without_rows_the_sampled_one_is_certain(engine: Engine) -> None:
    assert play(engine, [{"ids": [65, 66], "finish": "stop"}], logprobs=5).choices[0].rows == [[(65, 0.0, 1)], [(66, 0.0, 1)]]


def test_rows_only_when_asked_for(engine: Engine) -> None:
    assert play(engine, [{"ids": [65], "rows": [[[65, -1.0, 1]]], "finish": "stop"}]).choices[0].rows == []


def test_waiting_holds_up_nobody_else(engine: Engine) -> None:
    engine.add(request("slow", [1], script=[{"ids": [5], "wait_ms": 60_000}]))
    answers: dict[str, Answers] = defaultdict(Answers)
    collect(engine, answers)
    assert 50 < engine.due_in() < 61
    engine.add(request("fast", [1], script=[{"ids": [6]}], max_tokens=30))
    assert engine.due_in() == 0
    while "fast" not in answers or not answers["fast"].finished:
        collect(engine, answers)
    assert answers["fast"].tokens == [6] * 30
    assert "slow" not in answers
    engine.abort(["slow"])
    collect(engine, answers)
    assert answers["slow"].choices[0].finish_reason == "abort"


def test_a_wait_ends(engine: Engine) -> None:
    started = time.monotonic()
    answers = run(engine, request("r", [1], script=[{"ids": [5], "wait_ms": 30}, {"ids": [6], "wait_ms": 20, "finish": "stop"}]))
    assert answers["r"].tokens == [5, 6]
    assert time.monotonic() - started >= 0.05


MALFORMED = [
    [], {}, 5, True, "nonsense", "[", "[]", [5], [{}], [{"ids": "x"}], [{"ids": ["x"]}], [{"ids": [1.5]}], [{"ids": [1], "finish": "done"}],
    [{"ids": [1], "wait_ms": -1}], [{"ids": [1], "wait_ms": "x"}], [{"ids": [1], "rows": []}], [{"ids": [1], "rows": [[]]}],
    [{"ids": [1], "rows": [[[1, "Infinity", 1]]]}], [{"ids": [1], "rows": [[[1]]]}], [{"ids": [1], "unknown": 1}], [{"ids": []}],
    {"choices": []}, {"choices": [[]]}, {"choices": [[{"ids": [1]}]], "more": 1}, "[" * 10_000, None,
]  # fmt: skip


@pytest.mark.parametrize("script", MALFORMED, ids=lambda script: str(script)[:40])
def test_a_malformed_script_is_refused_by_name(script: Any) -> None:
    with pytest.raises(BadRequest) as refusal:
        parse(script, 1)
    assert refusal.value.param == "extra_args.script"


def test_too_few_choices_are_refused() -> None:
    with pytest.raises(BadRequest):
        parse({"choices": [[{"ids": [1]}]]}, 2)
