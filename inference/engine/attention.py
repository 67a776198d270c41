"""Attention over compact rows: one product for all decoding rows of a bucket, one call per piece of a prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inference.engine.batch import Batch, Packed
from inference.engine.kv import Bucket, KvShape, RowStore
from inference.engine.prompt_attention import attend_piece, piece_mask
from inference.engine.request import Sequence
from inference.engine.scheduler import Plan, Work


@dataclass
class DecodeGroup:
    """The decoding rows of one bucket; their tokens are start..stop of the batch."""

    bucket: Bucket
    start: int
    stop: int
    length: int  # of the longest
    slots: Tensor  # [rows * 2 * kv_heads], where the new keys and values go in a layer's flat storage
    mask: Tensor  # [rows * kv_heads, 1, length], 0 or -inf

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        storage = self.bucket.data[layer]
        head_dim = query.shape[-1]
        storage.view(-1, head_dim).index_copy_(0, self.slots, kv.reshape(-1, head_dim))
        keys, values = storage.view(2, -1, self.bucket.capacity, head_dim)[:, : len(self.mask), : self.length]
        grouped = query.reshape(len(self.mask), -1, head_dim)  # the query heads of one key/value head are rows of one product
        scores = torch.baddbmm(self.mask, grouped, keys.transpose(1, 2), alpha=scale)
        return torch.bmm(torch.softmax(scores, -1), values).view(query.shape)


@dataclass
class Segment:
    """A piece of one prompt: tokens start..stop of the batch, behind `past` computed ones."""

    seq: Sequence
    start: int
    stop: int
    past: int
    mask: Tensor | None  # None: nothing lies behind, plain causal

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        storage = self.seq.place.data[layer]
        end = self.past + self.stop - self.start
        storage[:, :, self.past : end] = kv.permute(1, 2, 0, 3)
        return attend_piece(query, storage[:, :, :end].transpose(1, 2), self.mask, scale)


class RowBatch(Batch):
    def __init__(self, packed: Packed, parts: list[DecodeGroup | Segment]) -> None:
        super().__init__(packed)
        self.parts = parts

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        if len(self.parts) == 1:
            return self.parts[0].attend(layer, query, kv, scale)
        result = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        for part in self.parts:
            rows = slice(part.start, part.stop)
            result[rows] = part.attend(layer, query[rows], kv[rows], scale)
        return result


def row_batch(plan: Plan, store: RowStore) -> RowBatch:
    """The plan's tokens, decoding rows first in the order of their storage, then the prompt pieces."""
    buckets = [bucket for bucket in store.buckets.values() if bucket.rows] if plan.decode else []
    decode = [seq for bucket in buckets for seq in bucket.rows]
    if len(decode) != len(plan.decode):
        raise RuntimeError("The decoding rows and the plan disagree.")
    parts: list[DecodeGroup | Segment] = []
    stop = 0
    for bucket in buckets:
        start, stop = stop, stop + len(bucket.rows)
        parts.append(decode_group(bucket, start, stop))
    for work in plan.prefill:
        start, stop = stop, stop + work.count
        parts.append(segment(work, start, stop, store.shape))
    return RowBatch(Packed.of([Work(seq, 1) for seq in decode] + plan.prefill, store.shape.device), parts)


def decode_group(bucket: Bucket, start: int, stop: int) -> DecodeGroup:
    shape = bucket.shape
    lengths = torch.tensor([len(seq.ids) for seq in bucket.rows])
    length = int(lengths.max())
    rows, heads = len(bucket.rows), shape.kv_heads
    planes = torch.arange(2).view(1, 2, 1) * bucket.data.shape[2]
    lines = (planes + torch.arange(rows).view(rows, 1, 1)) * heads + torch.arange(heads).view(1, 1, heads)
    slots = lines * bucket.capacity + (lengths - 1).view(rows, 1, 1)
    hidden = torch.arange(length)[None] >= lengths[:, None]
    mask = torch.zeros(rows, length, dtype=shape.dtype).masked_fill_(hidden, float("-inf"))
    mask = mask.repeat_interleave(heads, 0)[:, None]
    return DecodeGroup(bucket, start, stop, length, slots.flatten().to(shape.device), mask.to(shape.device))


def segment(work: Work, start: int, stop: int, shape: KvShape) -> Segment:
    past = work.seq.computed
    return Segment(work.seq, start, stop, past, piece_mask(work.count, past + work.count, shape.dtype, shape.device))
