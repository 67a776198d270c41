"""Drawing tokens from filtered distributions by inverting the cumulative distribution at one uniform number a row.

Weights are probabilities up to a factor: the likeliest token of a row weighs 1. Rows with top-k or top-p are drawn from their likeliest
candidates, which is exact as long as these hold all that the filter keeps; that is checked, and the rows that fail are sorted whole. The
others are drawn in two levels, which block and which token in it: one cumulative sum over the vocabulary costs more than the softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from inference.protocol.engine import Sampling

CANDIDATES = 128  # 1.2 ms at 32 rows of 49,152; a full sort 69
SPAN = 256  # tokens of a block


@dataclass
class Knobs:
    """The rows' parameters, as columns [rows, 1]. Sums and bounds are float64: the vocabulary's tail is many small numbers."""

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    min_p: Tensor
    uniform: Tensor

    @classmethod
    def of(cls, samplings: list[Sampling], uniforms: list[float], device: torch.device) -> Knobs:
        rows = [(s.temperature, s.top_p, s.top_k, s.min_p, uniform) for s, uniform in zip(samplings, uniforms, strict=True)]
        return cls(*torch.tensor(rows, dtype=torch.float64).to(device).T[..., None])

    def __getitem__(self, rows: Tensor) -> Knobs:
        return Knobs(self.temperature[rows], self.top_p[rows], self.top_k[rows], self.min_p[rows], self.uniform[rows])


def draw(logits: Tensor, best: Tensor, knobs: Knobs) -> Tensor:
    """[rows] token ids. `best` is each row's highest logit, [rows, 1]. The order of the filters: temperature, min-p, top-k, top-p."""
    weights = ((logits - best) / knobs.temperature.float()).exp_()
    weights.masked_fill_(weights < knobs.min_p.float(), 0.0)
    filtered = ((knobs.top_k > 0) | (knobs.top_p < 1))[:, 0]
    if not bool(filtered.any()):
        return draw_from_all(weights, knobs)
    if bool(filtered.all()):
        return draw_from_candidates(weights, knobs)
    tokens = torch.empty(len(weights), dtype=torch.int64, device=weights.device)
    tokens[filtered] = draw_from_candidates(weights[filtered], knobs[filtered])
    tokens[~filtered] = draw_from_all(weights[~filtered], knobs[~filtered])
    return tokens


def draw_from_candidates(weights: Tensor, knobs: Knobs) -> Tensor:
    """[rows] token ids under top-k and top-p."""
    tokens, sure = among_likeliest(weights, knobs, min(CANDIDATES, weights.shape[-1]))
    if not bool(sure.all()):
        tokens[~sure] = among_likeliest(weights[~sure], knobs[~sure], weights.shape[-1])[0]
    return tokens


def among_likeliest(weights: Tensor, knobs: Knobs, count: int) -> tuple[Tensor, Tensor]:
    """Tokens drawn from the `count` likeliest, and whether these hold all that the row's filters keep."""
    values, ids = weights.topk(count)
    limited = knobs.top_k > 0
    beyond = limited & (torch.arange(count, device=weights.device) >= knobs.top_k)
    kept = values.double().masked_fill_(beyond, 0.0)
    cumulative = kept.cumsum(-1)
    total = torch.where(limited, cumulative[:, -1:], weights.sum(-1, keepdim=True, dtype=torch.float64))
    nucleus = knobs.top_p * total
    sure = torch.where(limited, knobs.top_k <= count, cumulative[:, -1:] >= nucleus)
    kept.masked_fill_(cumulative - kept >= nucleus, 0.0)  # stays: what it takes to reach top-p, the likeliest always
    return ids.gather(-1, invert(kept, knobs.uniform))[:, 0], sure[:, 0]


def draw_from_all(weights: Tensor, knobs: Knobs) -> Tensor:
    """[rows] token ids from the whole vocabulary."""
    blocks = functional.pad(weights, (0, -weights.shape[-1] % SPAN)).unflatten(-1, (-1, SPAN))
    masses = blocks.sum(-1, dtype=torch.float64)
    block = invert(masses, knobs.uniform)
    mass = masses.gather(-1, block)
    before = masses.cumsum(-1).gather(-1, block) - mass
    within = (knobs.uniform * masses.sum(-1, keepdim=True) - before) / mass
    chosen = blocks.gather(1, block[..., None].expand(-1, -1, SPAN))[:, 0].double()
    return (block * SPAN + invert(chosen, within.clamp(0.0, 1.0)))[:, 0]


def invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """[rows, 1]: the first index whose cumulative weight exceeds `uniform` of the total; always one with a weight above zero."""
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    last = torch.searchsorted(cumulative, total)
    return torch.minimum(torch.searchsorted(cumulative, uniform * total, right=True), last)
