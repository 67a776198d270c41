"""One step's tokens, packed one after another, as a runner sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.engine.request import Sequence
from inference.engine.scheduler import Work


@dataclass
class Packed:
    """
    Attributes:
        ids, positions: [tokens].
        outputs: [n], which tokens need logits; None: all, in order.
        sampling: the sequences that get a token; their logits come first, in this order.
        prompt_work: the pieces of prompts that asked for logprobs; their positions' logits follow, piece by piece.
    """

    ids: Tensor
    positions: Tensor
    outputs: Tensor | None
    sampling: list[Sequence]
    prompt_work: list[Work]

    @classmethod
    def of(cls, works: list[Work], device: torch.device) -> Packed:
        outputs, prompt_work = output_positions(works)
        ids = [tid for work in works for tid in work.ids]
        return cls(
            ids=torch.tensor(ids, device=device),
            positions=torch.tensor([position for work in works for position in work.positions], device=device),
            outputs=None if outputs == list(range(len(ids))) else torch.tensor(outputs, dtype=torch.int64, device=device),
            sampling=[work.seq for work in works if work.completes],
            prompt_work=prompt_work,
        )


class Batch(ABC):
    """The tokens of a step and the keys and values behind them."""

    def __init__(self, packed: Packed) -> None:
        self.ids = packed.ids
        self.positions = packed.positions
        self.outputs = packed.outputs
        self.sampling = packed.sampling
        self.prompt_work = packed.prompt_work

    @abstractmethod
    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        """Store the new keys and values and attend.

        Args:
            query: [tokens, heads, head_dim], rotated.
            kv: [tokens, 2, kv_heads, head_dim], the keys rotated.

        Returns:
            [tokens, heads, head_dim]
        """


def output_positions(works: list[Work]) -> tuple[list[int], list[Work]]:
    """Which tokens of the batch need logits: the last of each piece that completes, then every one of a prompt that asked for logprobs."""
    sampled: list[int] = []
    prompt: list[int] = []
    prompt_work: list[Work] = []
    start = 0
    for work in works:
        if work.completes:
            sampled.append(start + work.count - 1)
        if work.seq.index == 0 and work.seq.request.prompt_rows is not None and work.seq.computed < work.seq.request.prompt_len:
            prompt += range(start, start + work.count)
            prompt_work.append(work)
        start += work.count
    return sampled + prompt, prompt_work
