"""Drawing tokens from filtered distributions by inverting the cumulative distribution at one uniform number a row.

Weights are probabilities up to a factor: the likeliest token of a row weighs 1. Nothing here sorts a vocabulary (70 ms for 32 rows) unless
it must: top-k draws from the likeliest candidates, if they hold all that the filter keeps; top-p draws from all, and draws again when that
lies outside its nucleus. Drawing from all takes two levels, which block and which token in it, because one cumulative sum over the
vocabulary costs more than the softmax.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine.largest import largest
from inference.engine.native import Native, native_for
from inference.protocol.engine import Sampling

LN2 = math.log(2)
CANDIDATES = 64  # 1 ms at 32 rows of 49,152; twice as many cost twice as much
SPAN = 256  # tokens of a block
ROUNDS = 8  # of rejection, before sorting after all: a small nucleus of a flat distribution


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

    def drawn_again(self) -> Knobs:
        """With the next uniform number of each row: a stream that its first one seeds, so that a row's draws are its own."""
        again = [random.Random(uniform).random() for uniform in self.uniform[:, 0].tolist()]
        uniform = torch.tensor(again, dtype=torch.float64)[:, None].to(self.uniform.device)
        return Knobs(self.temperature, self.top_p, self.top_k, self.min_p, uniform)


Draw = Callable[[Tensor, Knobs], Tensor]


def draw(logits: Tensor, best: Tensor, knobs: Knobs) -> Tensor:
    """[rows] token ids. `best` is each row's highest logit, [rows, 1]. The order of the filters: temperature, min-p, top-k, top-p."""
    weights = weigh(logits, best, knobs)
    filtered = ((knobs.top_k > 0) | (knobs.top_p < 1))[:, 0]
    return by_case(filtered, draw_filtered, draw_from_all, weights, knobs)


def weigh(logits: Tensor, best: Tensor, knobs: Knobs) -> Tensor:
    kernels = native_for(logits.dtype, logits.device)
    if kernels is not None:
        return kernels.weigh(logits, best, knobs.temperature, knobs.min_p)
    weights = (logits - best).div_(knobs.temperature.float() * LN2).exp2_()  # exp takes 5 to 20 times as long where a mask left -inf
    if bool((knobs.min_p > 0).any()):
        weights.masked_fill_(weights < knobs.min_p.float(), 0.0)
    return weights


def draw_filtered(weights: Tensor, knobs: Knobs) -> Tensor:
    return by_case((knobs.top_k > 0)[:, 0], draw_top_k, draw_top_p, weights, knobs)


def draw_top_k(weights: Tensor, knobs: Knobs) -> Tensor:
    """[rows] token ids under top-k, and top-p within it."""
    tokens, sure = draw_from_likeliest(weights, knobs, CANDIDATES)
    if not bool(sure.all()):
        tokens[~sure] = draw_sorted(weights[~sure], knobs[~sure])
    return tokens


def draw_top_p(weights: Tensor, knobs: Knobs) -> Tensor:
    """[rows] token ids under top-p alone.

    Any token drawn from all that lies in the nucleus is a fair draw from the nucleus. Where the first does not, a small nucleus is drawn
    from directly, and a large one by drawing again, which succeeds with a chance of at least top-p.
    """
    kernels = native_for(weights.dtype, weights.device)
    if kernels is not None:
        return draw_top_p_by(kernels, weights, knobs)
    tokens, kept = draw_once(weights, knobs)
    rows = (~kept).nonzero()[:, 0]
    for attempt in range(ROUNDS):
        if not len(rows):
            return tokens
        again = knobs[rows].drawn_again()
        drawn, kept = draw_from_likeliest(weights[rows], again, CANDIDATES) if attempt == 0 else draw_once(weights[rows], again)
        tokens[rows[kept]] = drawn[kept]
        knobs.uniform[rows] = again.uniform
        rows = rows[~kept]
    tokens[rows] = draw_sorted(weights[rows], knobs[rows].drawn_again())
    return tokens


def draw_top_p_by(kernels: Native, weights: Tensor, knobs: Knobs) -> Tensor:
    """The same, where drawing again costs little, so that it comes first."""
    tokens, kept = kernels.draw(weights, knobs.uniform, knobs.top_p, 2 * ROUNDS)
    rows = (~kept).nonzero()[:, 0]
    if len(rows):
        again = knobs[rows].drawn_again()
        drawn, sure = draw_from_likeliest(weights[rows], again, CANDIDATES)
        if not bool(sure.all()):
            drawn[~sure] = draw_sorted(weights[rows[~sure]], again[~sure])
        tokens[rows] = drawn
    return tokens


def draw_once(weights: Tensor, knobs: Knobs) -> tuple[Tensor, Tensor]:
    """Tokens drawn from all, and whether they lie in the nucleus: whether what is likelier weighs less than top-p."""
    tokens = draw_from_all(weights, knobs)
    likelier = weights > weights.gather(-1, tokens[:, None])
    before = torch.where(likelier, weights, 0.0).sum(-1, dtype=torch.float64)
    return tokens, before < knobs.top_p[:, 0] * weights.sum(-1, dtype=torch.float64)


def by_case(case: Tensor, if_so: Draw, if_not: Draw, weights: Tensor, knobs: Knobs) -> Tensor:
    """Each row by the draw of its case, all at once where they agree."""
    if bool(case.all()):
        return if_so(weights, knobs)
    if not bool(case.any()):
        return if_not(weights, knobs)
    tokens = torch.empty(len(weights), dtype=torch.int64, device=weights.device)
    tokens[case] = if_so(weights[case], knobs[case])
    tokens[~case] = if_not(weights[~case], knobs[~case])
    return tokens


def draw_from_likeliest(weights: Tensor, knobs: Knobs, count: int) -> tuple[Tensor, Tensor]:
    """Tokens drawn from the `count` likeliest, and whether these hold all that the row's filters keep."""
    values, ids = largest(weights, count)
    limited = knobs.top_k > 0
    beyond = limited & (torch.arange(values.shape[-1], device=weights.device) >= knobs.top_k)
    kept = values.double().masked_fill_(beyond, 0.0)
    cumulative = kept.cumsum(-1)
    total = cumulative[:, -1:]
    if not bool(limited.all()):
        total = torch.where(limited, total, weights.sum(-1, keepdim=True, dtype=torch.float64))
    nucleus = knobs.top_p * total
    sure = torch.where(limited, knobs.top_k <= values.shape[-1], cumulative[:, -1:] >= nucleus)
    kept.masked_fill_(cumulative - kept >= nucleus, 0.0)  # stays: what it takes to reach top-p, the likeliest always
    return ids.gather(-1, invert(kept, knobs.uniform))[:, 0], sure[:, 0]


def draw_sorted(weights: Tensor, knobs: Knobs) -> Tensor:
    return draw_from_likeliest(weights, knobs, weights.shape[-1])[0]


def draw_from_all(weights: Tensor, knobs: Knobs) -> Tensor:
    """[rows] token ids from the whole vocabulary."""
    kernels = native_for(weights.dtype, weights.device)
    if kernels is not None:
        return kernels.draw(weights, knobs.uniform, None)[0]
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
