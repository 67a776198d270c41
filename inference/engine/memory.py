"""What the scheduler asks of the memory for keys and values. No torch: the stores with tensors are in `kv`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inference.engine.request import Sequence


@dataclass
class CacheCounts:
    """Prefix cache, in tokens, since the start."""

    queried: int = 0
    hit: int = 0
    evicted: int = 0


class Memory(Protocol):
    """Question and act in pairs: an act is called only after its question was answered with yes.

    An `open` that raises has given nothing; after a `grow` or `close` that raises nothing is lost but that sequence.
    """

    counts: CacheCounts

    def can_open(self, seq: Sequence) -> bool:
        """Is there room for all its ids and one more?"""

    def open(self, seq: Sequence) -> int:
        """Give it that room; returns how many of its ids need no computing because the prefix cache holds their keys and values."""

    def can_grow(self, seq: Sequence) -> bool:
        """Is there room for its next step?"""

    def grow(self, seq: Sequence) -> None:
        """Give it that room."""

    def keep(self, seq: Sequence) -> None:
        """What is computed of its prompt may be used by others from now on."""

    def close(self, seq: Sequence) -> None:
        """Take its room back. What was computed may stay in the prefix cache."""

    def being_computed(self, seq: Sequence) -> bool:
        """Is a sequence open right now that is computing a prefix which this one could take from the cache a step later?"""

    def usage(self) -> float:
        """Share of the memory in use, 0 to 1."""


class Boundless:
    """Memory for the scripted engine, which keeps nothing."""

    def __init__(self) -> None:
        self.counts = CacheCounts()

    def can_open(self, seq: Sequence) -> bool:
        return True

    def open(self, seq: Sequence) -> int:
        return 0

    def can_grow(self, seq: Sequence) -> bool:
        return True

    def grow(self, seq: Sequence) -> None: ...

    def keep(self, seq: Sequence) -> None: ...

    def close(self, seq: Sequence) -> None: ...

    def being_computed(self, seq: Sequence) -> bool:
        return False

    def usage(self) -> float:
        return 0.0
