"""What structured outputs cost a decode step: 16 requests at once, held to a JSON schema and free, on the default model.

    python benchmarks/structured.py [--quick] [--rounds N] [--rows N]

The engine runs in this process. Both ways decode the same number of tokens after the same prompts: the schema's text cannot end before
them, and ends of sequence are ignored. Round by round, the one and the other in turn, greedy and drawn. Only steps in which every request
decodes are timed. Prints the medians of a step and of the sampler's part of it, and the mask's share of a step. Takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

from harness.works import prompt

from inference.engine.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.load import load_engine
from inference.protocol.engine import Constraint, EngineRequest, Sampling
from tokenry.model_store import find_model

PROMPT = 64
TEXT = {"type": "string", "maxLength": 40}
ITEM = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "kind": {"enum": ["plant", "animal", "stone"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 1000},
        "where": {"type": "array", "items": {"anyOf": [TEXT, {"type": "null"}]}, "maxItems": 4},
    },
    "required": ["name", "kind", "count", "where"],
    "additionalProperties": False,
}
ENDLESS = {"type": "array", "items": ITEM, "minItems": 500}
SCHEMA = Constraint(kind="json_schema", text=json.dumps(ENDLESS))


@dataclass(frozen=True)
class Way:
    """How the requests of one run are sampled."""

    temperature: float
    constraint: Constraint | None

    @property
    def name(self) -> str:
        return f"{'greedy' if self.temperature == 0 else 'drawn'}, {'free' if self.constraint is None else 'held to a schema'}"


@dataclass(frozen=True)
class Step:
    """Seconds of one decode step, and of the sampler in it."""

    whole: float
    sampler: float


WAYS = [Way(temperature, constraint) for temperature in (0.0, 0.8) for constraint in (None, SCHEMA)]


def main() -> None:
    options = arguments()
    tokens, rounds = (16, 1) if options.quick else (64, options.rounds)
    engine, _ = load_engine(EngineConfig(model=str(find_model("smollm2")), dtype="float32", device="cpu"))
    steps: dict[Way, list[Step]] = defaultdict(list)
    for way in WAYS:
        run(engine, way, options.rows, 8, Random(0))
    for number in range(rounds):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            steps[way] += run(engine, way, options.rows, tokens, Random(number))
    print(f"{len(os.sched_getaffinity(0))} cores, float32, {options.rows} requests at once; medians of {rounds} rounds of {tokens} tokens")
    for way in WAYS:
        print(f"  {way.name:<26} {milliseconds(steps[way], 'whole'):7.2f} ms a step, of which the sampler {sampler(steps[way]):5.2f} ms")
    for free, held in zip(WAYS[::2], WAYS[1::2], strict=True):
        mask, step = sampler(steps[held]) - sampler(steps[free]), milliseconds(steps[free], "whole")
        print(f"  the mask, {free.name.partition(',')[0]}: {mask:.2f} ms, {100 * mask / step:.1f}% of a free step")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of 16 tokens: shows that all runs, measures nothing")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5; with --quick 1)")
    parser.add_argument("--rows", type=int, default=16, help="requests at once (16)")
    return parser.parse_args()


def run(engine: Engine, way: Way, rows: int, tokens: int, random: Random) -> list[Step]:
    """Decode so many tokens of each request; the steps in which all of them did."""
    for number in range(rows):
        sampling = Sampling(max_tokens=tokens, ignore_eos=True, temperature=way.temperature, seed=number, constraint=way.constraint)
        engine.add(EngineRequest(id=str(number), token_ids=prompt(random, PROMPT), sampling=sampling))
    return list(decode_steps(engine, rows))


def decode_steps(engine: Engine, rows: int) -> Iterator[Step]:
    phases: dict[str, float] = engine.executor.phases  # type: ignore[attr-defined]
    while engine.busy:
        begun, before = time.perf_counter(), phases["sample"]
        outputs: Sequence[Any] = engine.step()
        seconds = time.perf_counter() - begun
        failed = [output.error or output.refused for output in outputs if output.error or output.refused]
        if failed:
            raise SystemExit(f"The engine failed: {failed[0]}")
        if engine.scheduler.running == rows and sum(len(output.choices) for output in outputs) == rows:
            yield Step(seconds, phases["sample"] - before)


def milliseconds(steps: Sequence[Step], part: str) -> float:
    return 1e3 * median(getattr(step, part) for step in steps)


def sampler(steps: Sequence[Step]) -> float:
    return milliseconds(steps, "sampler")


if __name__ == "__main__":
    main()
