"""Decoding on CUDA by replaying captured graphs: launching hundreds of kernels one by one takes longer than they run.

A graph is captured for each of a few numbers of rows, when it is first needed; fewer rows are padded. Everything that changes from step to
step is in tensors that the graph reads: ids, positions, and the layout of the pages.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from inference.engine.batch import Batch, Packed
from inference.engine.executor import Runner
from inference.engine.paged_attention import Layout, PagedBatch, flash, write
from inference.engine.pages import SCRATCH, PagedStore

log = logging.getLogger(__name__)

FEW = (1, 2, 4, 8)


class GraphRunner:
    """Replays decode steps of another runner, and passes every other step on to it."""

    def __init__(self, runner: Runner, store: PagedStore, max_rows: int) -> None:
        self.name = f"{runner.name}, graphs"
        self.shape = runner.shape
        self.vocab_size = runner.vocab_size
        self.runner = runner
        self.store = store
        self.sizes = [*FEW, *range(16, max_rows + 16, 16)]
        self.captured: dict[int, Captured] = {}  # by number of rows
        self.pool = torch.cuda.graph_pool_handle()

    def logits(self, batch: Batch) -> Tensor:
        if isinstance(batch, PagedBatch) and replayable(batch):
            rows = len(batch.pieces)
            captured = self._captured(rows)
            if captured is not None:
                return captured.replay(batch)[:rows]
        return self.runner.logits(batch)

    def _captured(self, rows: int) -> Captured | None:
        """The graph for so many rows; None once the model's own code has done what cannot be captured."""
        if not self.sizes:
            return None
        size = next(size for size in self.sizes if size >= rows)
        if size not in self.captured:
            try:
                self.captured[size] = Captured(self.runner, self.store, size, self.pool)
            except RuntimeError as exc:
                log.warning("Decoding goes on without CUDA graphs: %s", exc)
                self.sizes = []
                return None
        return self.captured[size]


def replayable(batch: PagedBatch) -> bool:
    """One token of each sequence, and logits for each: a piece of a prompt may be a single token too, of which none come, or two rows."""
    return batch.flash and batch.longest_query == 1 and batch.outputs is None


class StaticBatch(Batch):
    """A decode step of a fixed number of rows over the longest possible sequences, whose numbers are filled in later."""

    def __init__(self, store: PagedStore, size: int) -> None:
        device = store.shape.device
        zeros = torch.zeros(size, dtype=torch.int64, device=device)
        super().__init__(Packed(ids=zeros.clone(), positions=zeros.clone(), outputs=None, sampling=[], prompt_work=[]))
        self.pool = store.pool
        self.longest = store.max_len
        self.page = store.page
        self.width = store.pages_for(store.max_len)
        self.layout = Layout(
            slots=zeros + SCRATCH * self.page,
            starts=torch.arange(size + 1, dtype=torch.int32, device=device),
            lengths=torch.ones(size, dtype=torch.int32, device=device),
            table=torch.full((size, self.width), SCRATCH, dtype=torch.int32, device=device),
        )

    def attend(self, layer: int, query: Tensor, kv: Tensor, scale: float) -> Tensor:
        write(self.pool[layer], kv, self.layout.slots)
        return flash(query, self.pool[layer], self.layout, 1, self.longest, scale)

    def fill(self, batch: PagedBatch) -> None:
        """Take over another batch's numbers; rows beyond its own go back to the scratch page, where they disturb nobody."""
        rows, width = batch.layout.table.shape
        self.ids[:rows], self.positions[:rows] = batch.ids, batch.positions
        self.layout.slots[:rows], self.layout.lengths[:rows] = batch.layout.slots, batch.layout.lengths
        self.layout.table[:rows, :width] = batch.layout.table
        self.layout.slots[rows:], self.layout.lengths[rows:], self.layout.table[rows:] = SCRATCH * self.page, 1, SCRATCH


class Captured:
    """The graph of one number of rows."""

    def __init__(self, runner: Runner, store: PagedStore, size: int, pool: Any) -> None:
        self.batch = StaticBatch(store, size)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # once outside of the capture: kernels are chosen and workspaces made
            runner.logits(self.batch)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.logits = runner.logits(self.batch)

    def replay(self, batch: PagedBatch) -> Tensor:
        self.batch.fill(batch)
        self.graph.replay()
        return self.logits
