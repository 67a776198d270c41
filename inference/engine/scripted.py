"""The scripted engine: it takes the place of model and sampler, and answers what the request's script says. No torch.

Everything above is the real engine: scheduling, EOS, stop tokens, limits, abort. A script's shape is checked before it runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from inference.engine.request import Sampled, Sequence
from inference.engine.scheduler import Plan
from inference.errors import BadRequest
from inference.protocol.engine import EngineRequest, Row, Sampling

PARAM = "extra_args.script"
FINISHES = (None, "stop", "length", "abort", "error")
WORDS = {"NaN": float("nan"), "-Infinity": float("-inf")}


class Step(msgspec.Struct, forbid_unknown_fields=True):
    ids: list[int]
    rows: list[list[tuple[int, float | str, int | None]]] | None = None
    finish: str | None = None
    stop_reason: int | str | None = None
    wait_ms: float = 0


class PerChoice(msgspec.Struct, forbid_unknown_fields=True):
    choices: list[list[Step]]


def parse(script: Any, n: int) -> list[list[Step]]:
    """The steps of each of n choices.

    Raises:
        BadRequest: not of the shape that the command-line page describes; names `extra_args.script`.
    """
    try:
        if isinstance(script, str):
            script = json.loads(script)
        per_choice = isinstance(script, dict)
        choices = msgspec.convert(script, PerChoice).choices if per_choice else [msgspec.convert(script, list[Step])] * n
    except (msgspec.ValidationError, ValueError, RecursionError) as exc:
        raise BadRequest(f"The script is not of the shape of a script: {exc}", PARAM) from None
    if len(choices) < n:
        raise BadRequest(f"The script has {len(choices)} choices, the request asks for {n}.", PARAM)
    for steps in choices:
        check(steps)
    return choices


def check(steps: list[Step]) -> None:
    if not steps:
        raise BadRequest("A script needs at least one step.", PARAM)
    for step in steps:
        if step.finish not in FINISHES:
            raise BadRequest(f"A script's finish is null, stop, length, abort or error, not {step.finish!r}.", PARAM)
        if step.rows is not None and (len(step.rows) != len(step.ids) or not all(step.rows)):
            raise BadRequest("A step's rows are one per id, each with at least one candidate.", PARAM)
        if not step.wait_ms >= 0:
            raise BadRequest("A step's wait_ms is not negative.", PARAM)
        if any(isinstance(logprob, str) and logprob not in WORDS for row in step.rows or () for _, logprob, _ in row):
            raise BadRequest('A logprob is a number, "NaN" or "-Infinity".', PARAM)
    if not steps[-1].ids and steps[-1].finish is None:
        raise BadRequest("A script that ends without a finish repeats its last step, which then needs ids.", PARAM)


def default_script(request: EngineRequest, eos: list[int]) -> list[Step]:
    """Without a script: the prompt's own ids, one a step, then EOS."""
    ends = list(request.sampling.eos_token_ids)[:1] or eos[:1]
    return [Step([tid]) for tid in [*request.token_ids, *ends]]


class Player:
    """Where one choice stands in its script."""

    def __init__(self, steps: list[Step], sampling: Sampling) -> None:
        self.steps = steps
        self.with_rows = sampling.logprobs is not None or sampling.logprob_token_ids is not None
        self.next = 0
        self.due = 0.0
        self._arm(time.monotonic())

    def play(self, now: float) -> Sampled:
        """The next step, if its time has come."""
        if now < self.due:
            return Sampled([])
        step = self.steps[self.next]
        self.next = min(self.next + 1, len(self.steps) - 1)
        self._arm(now)
        if step.finish == "error":
            return Sampled(step.ids, self._rows(step), error="The script says so.")
        return Sampled(step.ids, self._rows(step), step.finish, step.stop_reason)

    def _arm(self, now: float) -> None:
        self.due = now + self.steps[self.next].wait_ms / 1000

    def _rows(self, step: Step) -> list[Row] | None:
        if not self.with_rows:
            return None
        if step.rows is None:
            return [[(tid, 0.0, 1)] for tid in step.ids]
        return [[(tid, WORDS[lp] if isinstance(lp, str) else lp, rank) for tid, lp, rank in row] for row in step.rows]


class ScriptedExecutor:
    def __init__(self, eos: list[int]) -> None:
        self.eos = eos
        self.phases: dict[str, float] = {}

    def run(self, plan: Plan) -> list[tuple[Sequence, Sampled]]:
        now = time.monotonic()
        results = [(seq, self._player(seq).play(now)) for seq in plan.sampling]
        for work in plan.prefill:
            self._invent_prompt_rows(work.seq)
        return results

    def due_in(self, running: Iterable[Sequence]) -> float:
        due = min((0.0 if seq.script is None else seq.script.due for seq in running), default=0.0)
        return max(0.0, due - time.monotonic())

    def _player(self, seq: Sequence) -> Player:
        if seq.script is None:
            script = seq.sampling.script
            steps = default_script(seq.request.wire, self.eos) if script is None else parse(script, seq.sampling.n)[seq.index]
            seq.script = Player(steps, seq.sampling)
        player: Player = seq.script
        return player

    def _invent_prompt_rows(self, seq: Sequence) -> None:
        """Prompt logprobs have no script: every prompt token is certain."""
        rows = seq.request.prompt_rows
        if rows is not None and len(rows) == 1:
            rows += [[(tid, 0.0, 1)] for tid in seq.request.wire.token_ids[1:]]
