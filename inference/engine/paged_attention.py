"""Attention over pages: torch's flash attention for CUDA's half precision, else gathered keys and values.

The kernels see one description of the step, whatever mixture of decoding rows and prompt pieces it is: where each sequence's queries
begin, how many keys it has, and which pages they are in.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from inference.engine.batch import Batch, Packed
from inference.engine.pages import PAGE, PagedStore
from inference.engine.prompt_attention import attend_piece, piece_mask
from inference.engine.scheduler import Plan, Work

log = logging.getLogger(__name__)

HALVES = (torch.float16, torch.bfloat16)


@dataclass
class Layout:
    """The step's sequences. Tensors, so that a captured graph can be given new numbers."""

    slots: Tensor  # [tokens], as `slots_of` gives them
    starts: Tensor  # [sequences + 1] int32: where each one's queries begin
    lengths: Tensor  # [sequences] int32: its keys, the new ones included
    table: Tensor  # [sequences, pages] int32

    @classmethod
    def of(cls, works: list[Work], device: torch.device, page: int) -> Layout:
        counts = torch.tensor([0] + [work.count for work in works], dtype=torch.int32)
        width = max(len(work.seq.place) for work in works)
        table = [work.seq.place + [0] * (width - len(work.seq.place)) for work in works]
        return cls(
            slots=slots_of(works, page).to(device),
            starts=counts.cumsum(0, dtype=torch.int32).to(device),
            lengths=torch.tensor([work.positions.stop for work in works], dtype=torch.int32, device=device),
            table=torch.tensor(table, dtype=torch.int32, device=device),
        )


class PagedBatch(Batch):
    """`works` are the step's pieces in the order of the tokens; those of a decoding row have one token."""

    def __init__(self, packed: Packed, works: list[Work], layout: Layout, pool: Tensor) -> None:
        super().__init__(packed)
        self.pieces = [(work.count, work.positions.stop) for work in works]
        self.layout = layout
        self.pool = pool
        self.longest_query = max(count for count, _ in self.pieces)
        self.longest = max(end for _, end in self.pieces)
        self.flash = pool.dtype in HALVES and flash_works(pool.device, pool.dtype, pool.shape[-1])

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        storage = self.pool[layer]
        write(storage, kv, self.layout.slots)
        if self.flash:
            return flash(query, storage, self.layout, self.longest_query, self.longest, scale)
        return gathered(query, storage, self.pieces, self.layout, scale)


def slots_of(works: list[Work], page: int) -> Tensor:
    """[tokens]: page * its size + offset, where the new keys and values go."""
    return torch.tensor([work.seq.place[at // page] * page + at % page for work in works for at in work.positions])


def write(storage: Tensor, kv: Tensor, slots: Tensor) -> None:
    storage.view(2, -1, *storage.shape[3:]).index_copy_(1, slots, kv.transpose(0, 1))


def flash(query: Tensor, storage: Tensor, layout: Layout, longest_query: int, longest: int, scale: float) -> Tensor:
    """Causal against the end of each sequence's keys, so a piece of a prompt sees what lies behind it."""
    keys, values = storage
    result = varlen_attn(
        query.contiguous(), keys, values, layout.starts, None, longest_query, longest,
        scale=scale, window_size=(-1, 0), enable_gqa=query.shape[1] != keys.shape[2], seqused_k=layout.lengths, block_table=layout.table,
    )  # fmt: skip
    return cast(Tensor, result)


@cache
def flash_works(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether torch's kernel is there for this device and right, tried on a decoding row and a piece of a prompt that share a page.

    What only the piece's later tokens may see is large, so that one position too many shows.
    """
    if device.type != "cuda":
        return False
    query = torch.randn(4, 2, head_dim, dtype=dtype, device=device)
    storage = torch.randn(2, 3, PAGE, 1, head_dim, dtype=dtype, device=device)
    storage[1, [0, 2], 5:] *= 50
    starts, lengths = (torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in ([0, 1, 4], [PAGE + 5, PAGE + 9]))
    table = torch.tensor([[1, 2], [1, 0]], dtype=torch.int32, device=device)
    layout = Layout(slots=torch.empty(0), starts=starts, lengths=lengths, table=table)
    scale = head_dim**-0.5
    try:
        result = flash(query, storage, layout, 3, PAGE + 9, scale)
    except (RuntimeError, TypeError, ValueError) as exc:
        log.warning("Attention runs without torch's paged kernel, which raised: %s", exc)
        return False
    expected = gathered(query, storage, [(1, PAGE + 5), (3, PAGE + 9)], layout, scale)
    return torch.allclose(result, expected, atol=2e-2, rtol=2e-2)


def gathered(query: Tensor, storage: Tensor, pieces: list[tuple[int, int]], layout: Layout, scale: float) -> Tensor:
    """Sequence by sequence with a copy of its keys and values: right everywhere, fast nowhere. A piece is (queries, keys)."""
    results: list[Tensor] = []
    start = 0
    for row, (count, end) in enumerate(pieces):
        page_numbers = layout.table[row, : -(-end // storage.shape[2])].long()
        kv = storage[:, page_numbers].flatten(1, 2)[:, :end]
        mask = piece_mask(count, end, query.dtype, query.device)
        results.append(attend_piece(query[start : start + count], kv, mask, scale))
        start += count
    return torch.cat(results)


def paged_batch(plan: Plan, store: PagedStore) -> PagedBatch:
    works = [Work(seq, 1) for seq in plan.decode] + plan.prefill
    device = store.shape.device
    layout = Layout.of(works, device, store.page)
    return PagedBatch(Packed.of(works, device), works, layout, store.pool)
