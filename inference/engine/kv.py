"""Keys and values in compact rows, for decoding on a CPU, with a pool of pages beside them for shared prefixes.

Decoding rows of similar length lie together, rows 0 to B-1 of a bucket, so that their keys and values are views and one product covers
them all; a row that leaves is replaced by the last one. A prompt is computed in a bucket of its own and joins when it decodes. A kept
prefix is copied out of its pages: 46 kB a token for SmolLM2-135M, 2 ms for 512 tokens whose computing takes half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inference.engine.memory import CacheCounts
from inference.engine.request import Sequence

if TYPE_CHECKING:
    from inference.engine.kept import KeptPrefixes

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
        """Memory for further rows is doubled: what is not used of it is never touched."""
        if len(self.rows) == self.data.shape[2]:
            self._resize(2 * len(self.rows))
        seq.place = Place(self, len(self.rows))
        self.rows.append(seq)

    def remove(self, row: int) -> None:
        """The last row takes the place of the one that leaves."""
        last = self.rows.pop()
        if row < len(self.rows):
            self.data[:, :, row, :, : last.computed] = self.data[:, :, len(self.rows), :, : last.computed]
            self.rows[row] = last
            last.place.row = row
        if self.rows and len(self.rows) < self.data.shape[2] // 4:
            self._resize(2 * len(self.rows))

    def _resize(self, rows: int) -> None:
        data = self.shape.empty(rows, self.capacity)
        used = max(seq.computed for seq in self.rows)
        data[:, :, : len(self.rows), :, :used] = self.data[:, :, : len(self.rows), :, :used]
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

    def __init__(self, shape: KvShape, max_len: int, budget: int, kept: KeptPrefixes | None) -> None:
        self.shape = shape
        self.max_len = max_len
        self.budget = max(budget, max_len)
        self.used = 0
        self.kept = kept
        self.counts = kept.counts if kept else CacheCounts()
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
        Bucket(self.shape, capacity, rows=1).add(seq)
        cached = self.kept.load(seq) if self.kept else 0
        self.used += capacity
        self.computing[seq] = None
        return cached

    def can_grow(self, seq: Sequence) -> bool:
        capacity: int = seq.place.bucket.capacity
        return self.used + self.capacity_for(len(seq.ids)) - capacity <= self.budget

    def grow(self, seq: Sequence) -> None:
        """Join the decoding rows, or move to longer ones."""
        capacity = max(self.capacity_for(len(seq.ids)), seq.place.bucket.capacity)
        if seq not in self.computing and capacity == seq.place.bucket.capacity:
            return
        left: Place = seq.place
        if capacity not in self.buckets:
            self.buckets[capacity] = Bucket(self.shape, capacity, rows=1)
        self.buckets[capacity].add(seq)
        self.used += capacity - left.bucket.capacity
        seq.place.data[:, :, :, : seq.computed] = left.data[:, :, :, : seq.computed]
        self._leave(seq, left)

    def close(self, seq: Sequence) -> None:
        """Where a sequence failed its numbers may not be finite: they are wiped, not kept."""
        try:
            if seq.finish_reason == "error":
                seq.place.data.zero_()
            elif self.kept:
                self.kept.keep(seq)
        finally:
            self.used -= seq.place.bucket.capacity
            self._leave(seq, seq.place)
            seq.place = None

    def keep(self, seq: Sequence) -> None:
        if self.kept:
            self.kept.keep(seq)

    def being_computed(self, seq: Sequence) -> bool:
        return self.kept is not None and self.kept.index.computed_by_another(seq, self.computing)

    def usage(self) -> float:
        return self.used / self.budget

    def _leave(self, seq: Sequence, place: Place) -> None:
        if seq in self.computing:  # in a bucket of its own
            del self.computing[seq]
            return
        place.bucket.remove(place.row)
        if not place.bucket.rows:
            del self.buckets[place.bucket.capacity]
