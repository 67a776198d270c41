"""Keys and values in pages that sequences share by number, for attention kernels that read through a page table: CUDA's, and our own.

A page belongs to as many owners as use it: sequences, and the prefix index. A kept prefix is used where it lies; only whole pages are
shared, and nobody writes into a whole page.
"""

from __future__ import annotations

from collections import Counter

import torch

from inference.engine.kv import KvShape
from inference.engine.memory import CacheCounts
from inference.engine.prefix import Block, PrefixIndex
from inference.engine.request import Sequence

PAGE = 256  # tokens; what torch's flash attention asks of a page
SMALL_PAGE = 16  # for our own kernels: less of a prompt lies beyond its last whole page
SCRATCH = 0  # the page that padding writes to


class PagedStore:
    """`inference.engine.memory.Memory` in pages of `page` tokens. `seq.place` is the list of its pages."""

    def __init__(self, shape: KvShape, max_len: int, budget: int, *, share: bool, page: int = PAGE) -> None:
        self.shape = shape
        self.max_len = max_len
        self.page = page
        self.count = self.pages_for(max(budget, max_len)) + 1
        make = torch.zeros if shape.device.type == "cuda" else torch.empty  # a CPU's is taken as it fills: what was not written is not read
        self.pool = make(shape.layers, 2, self.count, page, shape.kv_heads, shape.head_dim, dtype=shape.dtype, device=shape.device)
        self.free = list(range(self.count - 1, SCRATCH, -1))
        self.owners: Counter[int] = Counter()
        self.index = PrefixIndex(page)
        self.indexed: set[int] = set()
        self.idle = 0  # pages that only the index owns
        self.share = share
        self.counts = CacheCounts()
        self.computing: dict[Sequence, None] = {}

    @property
    def budget(self) -> int:
        return (self.count - 1) * self.page

    def pages_for(self, length: int) -> int:
        return -(-length // self.page)

    def can_open(self, seq: Sequence) -> bool:
        kept = self._kept(seq)
        return self._available(spare=kept) >= self.pages_for(len(seq.ids) + 1) - len(kept)

    def open(self, seq: Sequence) -> int:
        kept = self._kept(seq)
        self.index.touch(kept)
        seq.place = [block.page for block in kept]
        for page in seq.place:
            self._own(page)
        while len(seq.place) < self.pages_for(len(seq.ids) + 1):
            seq.place.append(self._take_page())
        self.computing[seq] = None
        self.counts.queried += len(seq.ids)
        self.counts.hit += len(kept) * self.page
        return len(kept) * self.page

    def can_grow(self, seq: Sequence) -> bool:
        return len(seq.ids) <= len(seq.place) * self.page or self._available(spare=[]) > 0

    def grow(self, seq: Sequence) -> None:
        self.computing.pop(seq, None)
        if len(seq.ids) > len(seq.place) * self.page:
            seq.place.append(self._take_page())

    def keep(self, seq: Sequence) -> None:
        """Let the index own the whole pages that are computed and not kept yet."""
        if not self.share:
            return
        blocks, missing = self.index.missing(seq)
        for tokens in missing:
            page = seq.place[len(blocks)]
            blocks.append(self.index.add(blocks[-1] if blocks else None, tokens, page, seq.request.wire.cache_salt))
            self.indexed.add(page)
            self.owners[page] += 1
        self.index.touch(blocks)

    def close(self, seq: Sequence) -> None:
        """Where a sequence failed its numbers may not be finite: they are wiped, not kept."""
        try:
            if seq.finish_reason == "error":
                self.pool[:, :, [page for page in seq.place if self.owners[page] == 1]] = 0
            else:
                self.keep(seq)
        finally:
            for page in seq.place:
                self._disown(page)
            self.computing.pop(seq, None)
            seq.place = None

    def being_computed(self, seq: Sequence) -> bool:
        return self.share and self.index.computed_by_another(seq, self.computing)

    def usage(self) -> float:
        """Pages that the index alone owns count as free: they go when somebody needs them."""
        return 1 - self._available(spare=[]) / (self.count - 1)

    def _kept(self, seq: Sequence) -> list[Block]:
        return self.index.usable(seq) if self.share else []

    def _available(self, spare: list[Block]) -> int:
        """Free pages and those that only the index owns, but for the ones that are about to be used."""
        return len(self.free) + self.idle - sum(self.owners[block.page] == 1 for block in spare)

    def _take_page(self) -> int:
        if not self.free:
            block = next(block for block in self.index.oldest() if self.owners[block.page] == 1)
            self.index.drop(block)
            self.counts.evicted += self.page
            self.indexed.remove(block.page)
            self.idle -= 1
            self._disown(block.page)
        page = self.free.pop()
        self.owners[page] = 1
        return page

    def _own(self, page: int) -> None:
        """One more owner of a page that the index keeps."""
        self.idle -= self.owners[page] == 1
        self.owners[page] += 1

    def _disown(self, page: int) -> None:
        self.owners[page] -= 1
        if not self.owners[page]:
            del self.owners[page]
            self.free.append(page)
        elif self.owners[page] == 1 and page in self.indexed:
            self.idle += 1
