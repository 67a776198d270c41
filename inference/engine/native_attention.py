"""Attention over pages with our own kernels: decoding rows read through the page table, pieces of prompts get a copy of what they need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inference.engine.batch import Batch, Packed
from inference.engine.native import Native, PagedRows
from inference.engine.paged_attention import slots_of, write
from inference.engine.pages import PagedStore
from inference.engine.prompt_attention import attend_piece, piece_mask
from inference.engine.scheduler import Plan, Work


class NativeBatch(Batch):
    """The decoding rows' tokens come first, then the pieces of prompts.

    `rows`: where the decoding rows' keys and values are; None without any.
    """

    def __init__(self, packed: Packed, kernels: Native, decode: list[Work], prefill: list[Work], store: PagedStore) -> None:
        super().__init__(packed)
        self.kernels = kernels
        self.pool = store.pool
        self.rows = PagedRows.of([work.seq.place for work in decode], [work.positions.stop for work in decode]) if decode else None
        self.slots = slots_of([*decode, *prefill], store.page)
        self.pieces: list[Piece] = []
        start = self.decoding = len(decode)
        for work in prefill:
            self.pieces.append(Piece.of(work, start, store))
            start += work.count

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        storage = self.pool[layer]
        write(storage, kv, self.slots)
        result = torch.empty(query.shape)
        if self.rows is not None:
            result[: self.decoding] = self.kernels.attend_pages(query[: self.decoding], storage, self.rows, scale)
        for piece in self.pieces:
            own = piece.kv(kv, storage)
            result[piece.tokens] = attend_piece(query[piece.tokens], own, piece.mask, scale)
        return result


@dataclass
class Piece:
    """A piece of a prompt, the same for all layers. `pages`: None where nothing of the sequence lies behind it."""

    tokens: slice
    end: int
    pages: Tensor | None
    mask: Tensor | None

    @classmethod
    def of(cls, work: Work, start: int, store: PagedStore) -> Piece:
        end = work.positions.stop
        pages = torch.tensor(work.seq.place[: store.pages_for(end)]) if work.seq.computed else None
        return cls(slice(start, start + work.count), end, pages, piece_mask(work.count, end, store.shape.dtype, store.shape.device))

    def kv(self, fresh: Tensor, storage: Tensor) -> Tensor:
        """[2, keys, kv_heads, head_dim]: all of the sequence's, up to the end of the piece."""
        if self.pages is None:
            return fresh[self.tokens].transpose(0, 1)
        return storage[:, self.pages].flatten(1, 2)[:, : self.end]


def native_batch(plan: Plan, store: PagedStore, kernels: Native) -> NativeBatch:
    decode = [Work(seq, 1) for seq in plan.decode]
    return NativeBatch(Packed.of(decode + plan.prefill, store.shape.device), kernels, decode, plan.prefill, store)
