"""Structured outputs on the tiny model. Its tokens 0 to 159 are bytes and its answers noise: what fits a grammar is the grammar's doing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.engine.engine import Engine
from inference.engine.mask import FORBIDDEN, forbidden
from inference.engine.request import Request
from inference.protocol.engine import Constraint, EngineOutput
from tests.inference.engine.conftest import VOCABULARY
from tests.inference.engine.running import Answers, collect, prompt, request
from tests.world import TOKENIZERS


@pytest.fixture
def engine(engine_on: Callable[..., Engine], tiny_model: Path, tmp_path: Path) -> Engine:
    shutil.copy(TOKENIZERS / "t1" / "tokenizer.json", tmp_path)
    built = engine_on(tokenizer=str(tmp_path))
    assert built.constraints is not None
    return built


def bound(request_id: str, constraint: Constraint, seed: int = 0, **fields: Any) -> Any:
    """A request that is held to the constraint, and drawn at random."""
    fields = {"temperature": 1.0, "seed": seed, "max_tokens": 300, "eos_token_ids": (2,), **fields}
    return request(request_id, prompt(6, seed), constraint=constraint, **fields)


def schema(value: Any, **more: Any) -> Constraint:
    return Constraint(kind="json_schema", text=json.dumps(value), **more)


def outputs(engine: Engine, *requests: Any) -> list[EngineOutput]:
    for each in requests:
        engine.add(each)
    found: list[EngineOutput] = []
    end = time.monotonic() + 60
    while engine.busy and time.monotonic() < end:
        found += engine.step()
    assert not engine.busy
    return found


def answers(engine: Engine, *requests: Any) -> dict[str, Answers]:
    found: dict[str, Answers] = {each.id: Answers() for each in requests}
    for output in outputs(engine, *requests):
        found[output.id].add(output)
    return found


def text(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token != 2).decode()


SMALL = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", None, True]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def test_noise_becomes_what_the_schema_says(engine: Engine) -> None:
    made = answers(engine, *(bound(f"r{i}", schema(SMALL), i) for i in range(8)))
    for answer in made.values():
        value = json.loads(text(answer.tokens))
        assert 0 <= value["a"] <= 99
        assert value["b"] in ("x", None, True)
        assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(("constraint", "fits"), [
    (Constraint(kind="regex", text="[ab]{3}-[0-9]"), lambda t: len(t) == 5 and set(t[:3]) <= set("ab") and t[3] == "-" and t[4].isdigit()),
    (Constraint(kind="grammar", text='root ::= "yes" | "no"'), lambda t: t in ("yes", "no")),
    (Constraint(kind="json_object"), lambda t: isinstance(json.loads(t), dict)),
    (schema({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}), lambda t: len(json.loads(t)) == 2),
    (schema({"type": "boolean"}, any_whitespace=False), lambda t: t in ("true", "false")),
])
def test_every_kind(engine: Engine, constraint: Constraint, fits: Any) -> None:
    made = answers(engine, *(bound(f"r{i}", constraint, i) for i in range(4)))
    finished = [answer for answer in made.values() if answer.choices[0].finish_reason == "stop"]
    assert finished
    for answer in finished:
        assert fits(text(answer.tokens)), text(answer.tokens)


def test_each_choice_goes_its_own_way(engine: Engine) -> None:
    constraint = Constraint(kind="regex", text="[a-z]{12}")
    made = answers(engine, bound("r", constraint, n=4))
    texts = [text(choice.tokens) for choice in made["r"].choices.values()]
    assert len(set(texts)) == 4
    assert all(len(each) == 12 and each.isalpha() for each in texts)


def test_mates_without_a_constraint_stay_as_they_are(engine: Engine) -> None:
    def free() -> Any:
        return request("free", prompt(7), temperature=0.0, max_tokens=30)

    alone = answers(engine, free())["free"].tokens
    mates = [bound(f"b{i}", schema(SMALL), i) for i in range(3)]
    assert answers(engine, free(), *mates)["free"].tokens == alone


def test_it_binds_once_the_reasoning_has_ended(engine: Engine) -> None:
    free = answers(engine, request("f", prompt(6, 3), temperature=1.0, seed=3, max_tokens=200))["f"].tokens
    end = free[3]
    first = free.index(end)
    constraint = Constraint(kind="regex", text="[a-c]{4}", after_token_ids=(end,))
    tokens = answers(engine, bound("r", constraint, 3))["r"].tokens
    assert tokens[: first + 1] == free[: first + 1]
    assert len(text(tokens[first + 1 :])) == 4
    assert set(text(tokens[first + 1 :])) <= set("abc")


@pytest.mark.parametrize("constraint", [
    Constraint(kind="regex", text="("),
    Constraint(kind="grammar", text="nonsense (("),
    Constraint(kind="grammar", text="root ::= root"),
    schema({"type": "integer", "minimum": 5, "maximum": 1}),
    Constraint(kind="structural_tag", text="{}"),
])
def test_what_cannot_be_compiled_is_refused_before_anything_is_made(engine: Engine, constraint: Constraint) -> None:
    (refusal,) = outputs(engine, request("r", prompt(5), max_tokens=5, constraint=constraint))
    assert refusal.finished
    assert refusal.refused
    assert not refusal.choices


def test_an_output_without_news_says_that_it_is_let_in(engine: Engine) -> None:
    first, *rest = outputs(engine, bound("r", schema({"const": 1})))
    assert (first.choices, first.finished, first.refused) == ([], False, None)
    assert rest[-1].finished


def test_a_compiler_that_takes_too_long_harms_nobody(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.engine.trial.LIMIT_S", 0.3)
    endless = Constraint(kind="regex", text="|".join(f"[a-z]{{1,{i}}}x" for i in range(1, 2000)))
    made = answers(engine, request("slow", prompt(5), max_tokens=5, constraint=endless), request("free", prompt(5), max_tokens=5))
    assert len(made["free"].tokens) == 5
    (refusal,) = outputs(engine, request("again", prompt(5), max_tokens=5, constraint=endless))
    assert "to compile" in str(refusal.refused)
    good = answers(engine, bound("good", Constraint(kind="regex", text="abc")))
    assert text(good["good"].tokens) == "abc"


def test_a_schema_is_compiled_once(engine: Engine) -> None:
    assert engine.constraints is not None
    for i in range(3):
        answers(engine, *(bound(f"r{i}{k}", Constraint(kind="regex", text="ab")) for k in range(3)))
    assert engine.constraints.compiled == 1


def test_the_cache_is_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.engine.constraints.KEPT", 3)
    assert engine.constraints is not None
    for i in range(6):
        engine.constraints.ask(Constraint(kind="regex", text=f"a{i}")).result()
    assert len(engine.constraints._kept) <= 4
    assert ("regex", "a5", True) in engine.constraints._kept


def test_an_abort_at_the_door(engine: Engine) -> None:
    engine.add(request("r", prompt(5), max_tokens=5, constraint=schema(SMALL)))
    engine.abort(["r"])
    found: dict[str, Answers] = {"r": Answers()}
    while engine.busy:
        collect(engine, found)
    assert found["r"].choices[0].finish_reason == "abort"


def test_an_ambiguous_grammar_fails_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = Constraint(kind="grammar", text='root ::= root root | "a"')
    monkeypatch.setattr("inference.engine.grammar.LONGEST_STEP_S", 0.003)
    made = answers(
        engine,
        bound("bad", constraint, max_tokens=400, logit_bias={97: 100.0}),
        request("free", prompt(5), max_tokens=20),
    )
    assert "ambiguous" in str(made["bad"].error)
    assert len(made["free"].tokens) == 20


def test_an_engine_that_does_not_know_the_tokens_says_so(engine_on: Callable[..., Engine]) -> None:
    (refusal,) = outputs(engine_on(), request("r", prompt(5), max_tokens=5, constraint=schema(SMALL)))
    assert refusal.error


def test_the_packed_mask(engine: Engine) -> None:
    assert FORBIDDEN[0b00000101].tolist() == [False, True, False, True, True, True, True, True]
    made = Request(bound("r", Constraint(kind="regex", text="[a-c]")))
    assert engine.constraints is not None
    assert made.sampling.constraint is not None
    engine.constraints.guide(made, engine.constraints.ask(made.sampling.constraint).result())
    mask = forbidden(made.choices, VOCABULARY, torch.device("cpu"))
    assert (~mask[0]).nonzero()[:, 0].tolist() == [97, 98, 99]
