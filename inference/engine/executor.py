"""Runs a step's plan on a model: prepare the batch, forward, sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor

from inference.engine.batch import Batch
from inference.engine.kv import KvShape
from inference.engine.logprobs import prompt_logprob_rows
from inference.engine.request import Sampled, Sequence
from inference.engine.sampler import sample
from inference.engine.scheduler import Plan


class Runner(Protocol):
    """A model's forward over a packed batch."""

    name: str
    shape: KvShape
    vocab_size: int

    def logits(self, batch: Batch) -> Tensor:
        """[outputs, vocabulary] in float32."""


class ModelExecutor:
    """Forward, then sampling. `batch_of` packs a plan for the store that its keys and values are in."""

    def __init__(self, runner: Runner, batch_of: Callable[[Plan], Batch]) -> None:
        self.runner = runner
        self.batch_of = batch_of
        self.phases = {"prepare": 0.0, "forward": 0.0, "sample": 0.0}

    @torch.inference_mode()
    def run(self, plan: Plan) -> list[tuple[Sequence, Sampled]]:
        started = time.perf_counter()
        batch = self.batch_of(plan)
        prepared = time.perf_counter()
        logits = self.runner.logits(batch)
        forwarded = time.perf_counter()
        count = len(batch.sampling)
        collect_prompt_rows(batch, logits[count:])
        results = sample(logits[:count], batch.sampling) if count else []
        self.phases["prepare"] += prepared - started
        self.phases["forward"] += forwarded - prepared
        self.phases["sample"] += time.perf_counter() - forwarded
        return list(zip(batch.sampling, results, strict=True))

    def due_in(self, running: Iterable[Sequence]) -> float:
        return 0.0


def collect_prompt_rows(batch: Batch, logits: Tensor) -> None:
    """Append the rows of this step's prompt positions. A prompt that is computed again after a preemption adds only what is new."""
    for work in batch.prompt_work:
        request, start = work.seq.request, work.seq.computed
        positions, logits = logits[: work.count], logits[work.count :]
        rows, count = request.prompt_rows, request.sampling.prompt_logprobs
        if rows is None or count is None:
            continue
        first = len(rows) - 1  # the position whose logits speak of the first prompt token without a row
        following = request.wire.token_ids[first + 1 : start + work.count + 1]
        if following and first >= start:
            rows += prompt_logprob_rows(positions[first - start :][: len(following)], following, count)
