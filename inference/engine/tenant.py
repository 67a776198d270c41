"""One tenant in the scheduler: what it waits for, what it runs, and what the others owe it. No torch."""

from __future__ import annotations

import heapq

from inference.engine.request import Sequence

DEAD = 64  # entries of a queue that may be of no use any more before it is cleared of them


class Tenant:
    """First in, first out within a priority; the lower priority value goes first, but nobody waits longer than `patience_s` behind it."""

    def __init__(self, name: str, patience_s: float) -> None:
        self.name = name
        self.weight = 1.0
        self.credit = 0.0  # tokens that it may have beyond the others before its turn ends; negative when it is ahead
        self.running: dict[Sequence, None] = {}  # in the order of admission
        self.patience_s = patience_s
        self._waiting: set[Sequence] = set()
        self._by_priority: list[tuple[int, int, int, Sequence]] = []
        self._by_arrival: list[tuple[int, int, int, Sequence]] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self.running

    def push(self, seq: Sequence) -> None:
        """Queue it where its arrival puts it: a preempted sequence comes back ahead of those that came later."""
        order = seq.request.order
        self._waiting.add(seq)
        heapq.heappush(self._by_priority, (seq.request.wire.priority, order, seq.index, seq))
        heapq.heappush(self._by_arrival, (0, order, seq.index, seq))

    def head(self, now: float) -> Sequence:
        """Who is next. Only called while somebody waits."""
        oldest = self._first(self._by_arrival)
        if now - oldest.request.arrived > self.patience_s:
            return oldest
        return self._first(self._by_priority)

    def take(self, seq: Sequence) -> None:
        """Remove it from the queue; its heap entries go when they come up, or when they are most of a heap."""
        self._waiting.discard(seq)
        for heap in (self._by_priority, self._by_arrival):
            if len(heap) > 2 * len(self._waiting) + DEAD:
                heap[:] = [entry for entry in heap if entry[-1] in self._waiting]
                heapq.heapify(heap)

    def _first(self, heap: list[tuple[int, int, int, Sequence]]) -> Sequence:
        while heap[0][-1] not in self._waiting:
            heapq.heappop(heap)
        return heap[0][-1]
