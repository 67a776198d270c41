"""Running requests on an engine in this process, and what they gave."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from inference.engine.engine import Engine
from inference.protocol.engine import EngineOutput, EngineRequest, Row, Sampling


@dataclass
class Answer:
    """What one choice gave in all."""

    tokens: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class Answers:
    choices: dict[int, Answer] = field(default_factory=lambda: defaultdict(Answer))
    error: str | None = None
    prompt_rows: list[Row | None] | None = None
    cached_tokens: int = 0
    outputs: int = 0
    finished: bool = False

    def add(self, output: EngineOutput) -> None:
        assert not self.finished, "an output after the final one"
        self.outputs += 1
        self.error, self.finished = output.error, output.finished
        self.cached_tokens = output.cached_tokens
        if output.prompt_rows is not None:
            assert self.prompt_rows is None, "prompt rows twice"
            self.prompt_rows = output.prompt_rows
        for choice in output.choices:
            answer = self.choices[choice.index]
            assert answer.finish_reason is None, "a choice went on after its end"
            answer.tokens += choice.token_ids
            answer.rows += choice.rows or []
            answer.finish_reason, answer.stop_reason = choice.finish_reason, choice.stop_reason

    @property
    def tokens(self) -> list[int]:
        return self.choices[0].tokens


def request(request_id: str, ids: list[int], **fields: Any) -> EngineRequest:
    """A request; what is a field of EngineRequest goes there, the rest to its sampling."""
    outer = {name: fields.pop(name) for name in ("tenant", "weight", "priority", "cache_salt") if name in fields}
    return EngineRequest(id=request_id, token_ids=ids, sampling=Sampling(**fields), **outer)


def run(engine: Engine, *requests: EngineRequest) -> dict[str, Answers]:
    """All together, to their ends."""
    for wire in requests:
        engine.add(wire)
    answers: dict[str, Answers] = defaultdict(Answers)
    while engine.busy:
        collect(engine, answers)
    return answers


def run_one(engine: Engine, ids: list[int], **fields: Any) -> Answers:
    return run(engine, request("only", ids, **fields))["only"]


def collect(engine: Engine, answers: dict[str, Answers]) -> None:
    """One step."""
    for output in engine.step():
        answers[output.id].add(output)


def prompt(length: int, seed: int = 0, vocabulary: int = 160) -> list[int]:
    generator = random.Random(f"{length} {seed}")
    return [generator.randrange(3, vocabulary) for _ in range(length)]
