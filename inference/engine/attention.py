"""One step's tokens, packed, and attention over compact rows: one product for all decoding rows of a bucket, one call per prompt piece."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine.kv import Bucket, KvShape, RowStore
from inference.engine.request import Sequence
from inference.engine.scheduler import Plan, Work


class Batch(Protocol):
    """What a runner needs of a step.

    Attributes:
        ids, positions: [tokens], all rows' tokens one after another.
        outputs: [n], which of them need logits; None: all, in order.
        sampling: the sequences that get a token; their logits come first, in this order.
        prompt_work: the pieces of prompts that asked for logprobs; their positions' logits follow, piece by piece.
    """

    ids: Tensor
    positions: Tensor
    outputs: Tensor | None
    sampling: list[Sequence]
    prompt_work: list[Work]

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        """Store the new keys and values and attend.

        Args:
            query: [tokens, heads, head_dim], rotated.
            kv: [tokens, 2, kv_heads, head_dim], the keys rotated.

        Returns:
            [tokens, heads, head_dim]
        """


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
        keys, values = storage[:, None, :, :end]
        result = functional.scaled_dot_product_attention(
            query.transpose(0, 1)[None], keys, values, attn_mask=self.mask, is_causal=self.mask is None, scale=scale, enable_gqa=True
        )
        return result[0].transpose(0, 1)


@dataclass
class RowBatch:
    ids: Tensor
    positions: Tensor
    outputs: Tensor | None
    sampling: list[Sequence]
    prompt_work: list[Work]
    parts: list[DecodeGroup | Segment] = field(default_factory=list)

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
    device = store.shape.device
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
    works = [Work(seq, 1) for seq in decode] + plan.prefill
    outputs, prompt_work = output_positions(works)
    return RowBatch(
        ids=torch.tensor([tid for work in works for tid in work.ids], device=device),
        positions=torch.tensor([position for work in works for position in work.positions], device=device),
        outputs=None if outputs == list(range(stop)) else torch.tensor(outputs, dtype=torch.int64, device=device),
        sampling=[work.seq for work in works if work.completes],
        prompt_work=prompt_work,
        parts=parts,
    )


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
    past, count = work.seq.computed, work.count
    if past == 0:
        return Segment(work.seq, start, stop, past, None)
    mask = torch.full((count, past + count), float("-inf"), dtype=shape.dtype).triu_(past + 1)
    return Segment(work.seq, start, stop, past, mask.to(shape.device))
