"""Attention of a piece of a prompt, over the keys and values of its sequence, wherever those are kept."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def piece_mask(count: int, end: int, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """[count, end], 0 or -inf, for the last `count` of `end` positions. None: nothing lies behind them, plain causal."""
    if count == end:
        return None
    return torch.full((count, end), float("-inf"), dtype=dtype, device=device).triu_(end - count + 1)


def attend_piece(query: Tensor, kv: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """[queries, heads, head_dim]: the last positions of a sequence, whose keys and values are kv [2, keys, kv_heads, head_dim]."""
    keys, values = kv.transpose(1, 2)[:, None]
    result = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None], keys, values, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
    )
    return result[0].transpose(0, 1)
