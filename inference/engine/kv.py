"""Keys and values in compact rows, for decoding on a CPU, with a pool of pages beside them for shared prefixes.

Decoding rows of similar length lie together, rows 0 to B-1 of a bucket, so that their keys and values are views and one product covers
them all; a row that leaves is replaced by the last one. A prompt is computed in a bucket of its own and joins when it decodes. A kept
prefix is copied out of its pages: 46 kB a token for SmolLM2-135M, 2 ms for 512 tokens whose computing takes half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.engine.memory import CacheCounts
from inference.engine.prefix import BLOCK, Block, PrefixIndex
from inference.engine.request import Sequence

SMALLEST = 128  # tokens; below that, padding costs less than another group


@dataclass(frozen=True)
class KvShape:
    """What a model's keys and values look like."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: Any) -> KvShape:
        """Of a Hugging Face causal model."""
        config = model.config.get_text_config()
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        return cls(config.num_hidden_layers, kv_heads, head_dim, model.dtype, model.device)

    @property
    def token_bytes(self) -> int:
        return self.layers * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize

    def empty(self, rows: int, length: int) -> Tensor:
        """[layers, 2, rows, kv_heads, length, head_dim]. Zeros, because what a mask hides must still be finite."""
        return torch.zeros(self.layers, 2, rows, self.kv_heads, length, self.head_dim, dtype=self.dtype, device=self.device)


class Bucket:
    """Rows of one capacity. `rows[i]` is the sequence in row i."""

    def __init__(self, shape: KvShape, capacity: int, rows: int) -> None:
        self.shape = shape
        self.capacity = capacity
        self.rows: list[Sequence] = []
        self.data = shape.empty(rows, capacity)

    def add(self, seq: Sequence) -> None:
        if len(self.rows) == self.data.shape[2]:
            self._resize(len(self.rows) + max(1, len(self.rows) // 4))
        seq.place = Place(self, len(self.rows))
        self.rows.append(seq)

    def remove(self, seq: Sequence) -> None:
        """The last row takes the place of the one that leaves."""
        row = seq.place.row
        last = self.rows.pop()
        if last is not seq:
            self.data[:, :, row, :, : last.computed] = self.data[:, :, len(self.rows), :, : last.computed]
            self.rows[row] = last
            last.place.row = row
        seq.place = None
        if len(self.rows) < self.data.shape[2] // 2:
            self._resize(len(self.rows))

    def _resize(self, rows: int) -> None:
        data = self.shape.empty(rows, self.capacity)
        data[:, :, : len(self.rows)] = self.data[:, :, : len(self.rows)]
        self.data = data


@dataclass
class Place:
    bucket: Bucket
    row: int

    @property
    def data(self) -> Tensor:
        """[layers, 2, kv_heads, capacity, head_dim]"""
        return self.bucket.data[:, :, self.row]


class RowStore:
    """`inference.engine.memory.Memory` in compact rows. Capacities are powers of two up to `max_len`; `budget` counts them, in tokens."""

    def __init__(self, shape: KvShape, max_len: int, budget: int, pages: Pages | None) -> None:
        self.shape = shape
        self.max_len = max_len
        self.budget = max(budget, max_len)
        self.used = 0
        self.pages = pages
        self.counts = pages.counts if pages else CacheCounts()
        self.buckets: dict[int, Bucket] = {}
        self.computing: dict[Sequence, None] = {}

    def capacity_for(self, length: int) -> int:
        capacity = SMALLEST
        while capacity < length:
            capacity *= 2
        return min(capacity, self.max_len)

    def can_open(self, seq: Sequence) -> bool:
        return self.used + self.capacity_for(len(seq.ids) + 1) <= self.budget

    def open(self, seq: Sequence) -> int:
        capacity = self.capacity_for(len(seq.ids) + 1)
        self.used += capacity
        Bucket(self.shape, capacity, rows=1).add(seq)
        self.computing[seq] = None
        return self.pages.load(seq) if self.pages else 0

    def can_grow(self, seq: Sequence) -> bool:
        capacity: int = seq.place.bucket.capacity
        return self.used + self.capacity_for(len(seq.ids)) - capacity <= self.budget

    def grow(self, seq: Sequence) -> None:
        """Join the decoding rows, or move to longer ones."""
        capacity = max(self.capacity_for(len(seq.ids)), seq.place.bucket.capacity)
        if seq not in self.computing and capacity == seq.place.bucket.capacity:
            return
        self.used += capacity - seq.place.bucket.capacity
        kept = seq.place.data[:, :, :, : seq.computed].clone()
        self._leave(seq)
        if capacity not in self.buckets:
            self.buckets[capacity] = Bucket(self.shape, capacity, rows=1)
        self.buckets[capacity].add(seq)
        seq.place.data[:, :, :, : seq.computed] = kept

    def close(self, seq: Sequence) -> None:
        """Where a sequence failed its numbers may not be finite: they are wiped, not kept."""
        self.used -= seq.place.bucket.capacity
        if seq.finish_reason == "error":
            seq.place.data.zero_()
        elif self.pages:
            self.pages.keep(seq)
        self._leave(seq)

    def keep(self, seq: Sequence) -> None:
        if self.pages:
            self.pages.keep(seq)

    def being_computed(self, seq: Sequence) -> bool:
        return self.pages is not None and self.pages.computed_by_another(seq, list(self.computing))

    def usage(self) -> float:
        return self.used / self.budget

    def _leave(self, seq: Sequence) -> None:
        if seq in self.computing:
            del self.computing[seq]
            seq.place = None
            return
        bucket: Bucket = seq.place.bucket
        bucket.remove(seq)
        if not bucket.rows:
            del self.buckets[bucket.capacity]


class Pages:
    """Blocks of kept prefixes. The pool is touched, and so takes memory, only as it fills."""

    def __init__(self, shape: KvShape, count: int) -> None:
        self.pool = torch.empty(
            count, shape.layers, 2, shape.kv_heads, BLOCK, shape.head_dim, dtype=shape.dtype, device=shape.device
        )
        self.free = list(range(count - 1, -1, -1))
        self.index = PrefixIndex()
        self.counts = CacheCounts()

    def load(self, seq: Sequence) -> int:
        """Copy the longest kept prefix into the sequence's row; returns its length."""
        self.counts.queried += len(seq.ids)
        blocks = self.usable(seq)
        if not blocks:
            return 0
        self.index.touch(blocks)
        pages = self.pool[torch.tensor([block.page for block in blocks])]
        length = len(blocks) * BLOCK
        seq.place.data[:, :, :, :length] = pages.permute(1, 2, 3, 0, 4, 5).flatten(3, 4)
        self.counts.hit += length
        return length

    def usable(self, seq: Sequence) -> list[Block]:
        """A request for prompt logprobs needs every position computed, so it takes nothing from the cache."""
        if seq.request.prompt_rows is not None:
            return []
        return self.index.match(seq.ids, seq.request.wire.cache_salt)

    def keep(self, seq: Sequence) -> None:
        salt = seq.request.wire.cache_salt
        blocks, missing = self.index.missing(seq.ids, seq.computed, salt)
        self.index.touch(blocks)
        first = len(blocks)
        for tokens in missing:
            page = self._take_page(keep=set(blocks))
            if page is None:
                break
            blocks.append(self.index.add(blocks[-1] if blocks else None, tokens, page, salt))
        self.index.touch(blocks)
        self._copy_out(seq, blocks, first)

    def computed_by_another(self, seq: Sequence, computing: list[Sequence]) -> bool:
        """Whether one of `computing` is at work on the block that this one would have to compute first."""
        length = (len(self.usable(seq)) + 1) * BLOCK
        if length >= len(seq.ids) or seq.request.prompt_rows is not None:
            return False
        wanted, salt = seq.ids[:length], seq.request.wire.cache_salt
        return any(
            other.computed < length <= len(other.ids) and other.request.wire.cache_salt == salt and other.ids[:length] == wanted
            for other in computing
        )

    def _take_page(self, keep: set[Block]) -> int | None:
        if self.free:
            return self.free.pop()
        block = next(self.index.oldest(), None)
        if block is None or block in keep:
            return None
        self.index.drop(block)
        self.counts.evicted += BLOCK
        return block.page

    def _copy_out(self, seq: Sequence, blocks: list[Block], first: int) -> None:
        """Fill the pages of the blocks from number `first` on."""
        if first == len(blocks):
            return
        data = seq.place.data[:, :, :, first * BLOCK : len(blocks) * BLOCK]
        pages = torch.tensor([block.page for block in blocks[first:]])
        self.pool[pages] = data.unflatten(3, (-1, BLOCK)).permute(3, 0, 1, 2, 4, 5)
