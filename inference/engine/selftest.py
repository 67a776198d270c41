"""Proof that a runner computes the model: its greedy tokens are those of the model's own forward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from inference.engine.attention import row_batch
from inference.engine.engine import Engine
from inference.engine.executor import ModelExecutor, Runner
from inference.engine.kv import RowStore
from inference.engine.native import attending
from inference.engine.native_attention import native_batch
from inference.engine.pages import SMALL_PAGE, PagedStore
from inference.engine.scheduler import Limits, Scheduler
from inference.protocol.engine import EngineRequest, Sampling

PROMPT, NEW = 24, 6
TIES = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.25}  # logits this close may swap places


@dataclass
class Reference:
    """What the model itself answers to one prompt."""

    prompt: list[int]
    tokens: list[int]
    logits: list[Tensor]  # that each token is the best of

    @classmethod
    @torch.inference_mode()
    def of(cls, model: Any) -> Reference:
        vocabulary = model.get_output_embeddings().weight.shape[0]
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(vocabulary, (PROMPT,), generator=generator).tolist()
        reference = cls(list(ids), [], [])
        for _ in range(NEW):
            logits = model(torch.tensor([ids], device=model.device), use_cache=False, logits_to_keep=1).logits[0, -1].float()
            reference.logits.append(logits)
            reference.tokens.append(int(logits.argmax()))
            ids.append(reference.tokens[-1])
        return reference

    def fault_of(self, runner: Runner) -> str | None:
        """How the runner's answer differs, or None. A chunked prompt, then one token a step, as in real work."""
        try:
            tokens = greedy(runner, self.prompt)
        except Exception as exc:
            return str(exc)
        for expected, got, logits in zip(self.tokens, tokens, self.logits, strict=True):
            if got != expected:
                gap = float(logits[expected] - logits[got])
                return None if gap <= TIES[runner.shape.dtype] else f"its tokens are not the model's ({got} for {expected})"
        return None


def greedy(runner: Runner, prompt: list[int]) -> list[int]:
    length = PROMPT + NEW
    executor, store = small_executor(runner, length)
    limits = Limits(max_rows=1, max_len=length, chunk=PROMPT * 2 // 3, chunk_idle=PROMPT * 2 // 3)
    engine = Engine(executor, Scheduler(limits, store), strict=True)
    engine.add(EngineRequest(id="self-test", token_ids=prompt, sampling=Sampling(temperature=0, max_tokens=NEW)))
    tokens: list[int] = []
    while engine.busy:
        for output in engine.step():
            tokens += output.choices[0].token_ids
    return tokens


def small_executor(runner: Runner, length: int) -> tuple[ModelExecutor, RowStore | PagedStore]:
    """With the attention that the engine will use on a CPU. CUDA's pages are tried by themselves."""
    kernels = attending(runner.shape.dtype, runner.shape.device, runner.shape.head_dim)
    if kernels is None:
        rows = RowStore(runner.shape, max_len=length, budget=length, kept=None)
        return ModelExecutor(runner, partial(row_batch, store=rows)), rows
    pages = PagedStore(runner.shape, max_len=length, budget=length, share=False, page=SMALL_PAGE)
    return ModelExecutor(runner, partial(native_batch, store=pages, kernels=kernels)), pages
