"""What choosing a token asks of whole rows of a vocabulary: the largest values, and sums."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine.native import native_for

SPAN = 64
FEW = 64  # above that, insertion into a list costs more than it saves


def highest(values: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row [rows, 1], not a number if the row holds one that is none, and where it is first [rows]."""
    kernels = native_for(values.dtype, values.device)
    return (values.amax(-1, keepdim=True), values.argmax(-1)) if kernels is None else kernels.highest(values)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, or all if there are fewer, and where they are: `topk`, at a third of its time where few are wanted.

    The `count` largest values lie in the `count` blocks with the largest maxima, so only those blocks are searched.
    """
    width = values.shape[-1]
    kernels = native_for(values.dtype, values.device)
    if kernels is not None and count <= min(FEW, width):
        return kernels.largest(values, count)
    if count * SPAN * 4 > width:
        found, where = values.topk(min(count, width))
        return found, where
    blocks = functional.pad(values, (0, -width % SPAN), value=float("-inf")).unflatten(-1, (-1, SPAN))
    best = blocks.amax(-1).topk(count, sorted=False).indices
    found, where = blocks.gather(1, best[..., None].expand(-1, -1, SPAN)).flatten(1).topk(count)
    return found, best.gather(1, torch.div(where, SPAN, rounding_mode="floor")) * SPAN + where % SPAN


def log_sums(values: Tensor) -> Tensor:
    """[rows, 1]: the logarithm of the sum of each row's exponentials."""
    kernels = native_for(values.dtype, values.device)
    return values.logsumexp(-1, keepdim=True) if kernels is None else kernels.log_sums(values)


def count_above(values: Tensor, one: Tensor) -> Tensor:
    """[rows]: how many of each row's values are above the row's one [rows, 1]."""
    kernels = native_for(values.dtype, values.device)
    return (values > one).sum(-1) if kernels is None else kernels.count_above(values, one)
