"""The masks of constrained rows, from a bit a token to logits. No grammar library: a guide writes its own row."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.engine.request import Sequence

BANNED = float("-inf")
FORBIDDEN = torch.tensor([[not byte >> bit & 1 for bit in range(8)] for byte in range(256)])  # a byte's 8 tokens, the lowest bit first


def constrained(logits: Tensor, choices: list[Sequence]) -> Tensor:
    """The logits with all that a grammar forbids at -inf: a changed copy, or the same tensor when no choice is bound."""
    rows = [row for row, choice in enumerate(choices) if choice.constrained]
    if not rows:
        return logits
    mask = forbidden([choices[row] for row in rows], logits.shape[-1], logits.device)
    if len(rows) == len(logits):
        return logits.masked_fill(mask, BANNED)
    logits = logits.clone()
    logits[rows] = logits[rows].masked_fill(mask, BANNED)
    return logits


def empty_mask(rows: int, vocabulary: int) -> Tensor:
    """A bit a token, 32 of them in an int32."""
    return torch.full((rows, -(-vocabulary // 32)), -1, dtype=torch.int32)


def forbidden(choices: list[Sequence], vocabulary: int, device: torch.device) -> Tensor:
    """[choices, vocabulary] bool: what each choice's grammar does not let come next."""
    packed = empty_mask(len(choices), vocabulary)
    for row, choice in enumerate(choices):
        choice.guide.allow(packed, row)
    return FORBIDDEN[packed.view(torch.uint8).long()].flatten(1)[:, :vocabulary].to(device)
