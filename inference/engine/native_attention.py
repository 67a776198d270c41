"""Attention over pages with our own kernels: decoding rows read through the page table, pieces of prompts get a copy of what they need."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.engine.batch import Batch, Packed
from inference.engine.native import Native, PagedRows
from inference.engine.paged_attention import attended, slots_of, write
from inference.engine.pages import PagedStore
from inference.engine.scheduler import Plan, Work


class NativeBatch(Batch):
    """The decoding rows' tokens come first, then the pieces of prompts.

    `rows`: where the decoding rows' keys and values are; None without any.
    """

    def __init__(self, packed: Packed, kernels: Native, decode: list[Work], prefill: list[Work], store: PagedStore) -> None:
        super().__init__(packed)
        self.kernels = kernels
        self.pool = store.pool
        self.page = store.page
        self.prefill = prefill
        self.count = len(decode)
        self.rows = PagedRows.of([work.seq.place for work in decode], [work.positions.stop for work in decode]) if decode else None
        self.slots = slots_of([*decode, *prefill], store.page)

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        storage = self.pool[layer]
        write(storage, kv, self.slots)
        result = torch.empty(query.shape)
        if self.rows is not None:
            result[: self.count] = self.kernels.attend_pages(query[: self.count], storage, self.rows, scale)
        start = self.count
        for work in self.prefill:
            piece = slice(start, start + work.count)
            result[piece] = attended(query[piece], self._kv_of(work, kv[piece], storage), scale)
            start += work.count
        return result

    def _kv_of(self, work: Work, fresh: Tensor, storage: Tensor) -> Tensor:
        """[2, keys, kv_heads, head_dim]: all of the sequence's, up to the end of the piece."""
        if work.seq.computed == 0:
            return fresh.transpose(0, 1)
        end = work.positions.stop
        return storage[:, torch.tensor(work.seq.place[: -(-end // self.page)])].flatten(1, 2)[:, :end]


def native_batch(plan: Plan, store: PagedStore, kernels: Native) -> NativeBatch:
    decode = [Work(seq, 1) for seq in plan.decode]
    return NativeBatch(Packed.of(decode + plan.prefill, store.shape.device), kernels, decode, plan.prefill, store)
