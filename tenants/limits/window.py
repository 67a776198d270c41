"""The last minute, second by second: a sliding window whose refusals know exactly when they end.

An admission counts from its second on until that second has been over for a minute. So no 60 seconds ever hold more than the limit,
at the price that the last of a burst counts up to a second longer than a minute. Memory is 61 buckets, whatever the limit.
Times are whole milliseconds, because that is what a caller is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

SECONDS = 60


@dataclass
class Bucket:
    """One second's admissions: how many, and the tokens that they hold or have used."""

    requests: int = 0
    tokens: int = 0


@dataclass
class Window:
    buckets: dict[int, Bucket] = field(default_factory=dict)

    def forget(self, now: int) -> None:
        """Both ways: a clock that was set back must not leave seconds of the future that never end."""
        self.buckets = {tick: bucket for tick, bucket in self.buckets.items() if counts(tick, now)}

    def add(self, tick: int, now: int, requests: int, tokens: int) -> None:
        """Nothing where that second counts no longer."""
        if counts(tick, now):
            bucket = self.buckets.setdefault(tick, Bucket())
            bucket.requests += requests
            bucket.tokens += tokens

    @property
    def requests(self) -> int:
        return sum(bucket.requests for bucket in self.buckets.values())

    @property
    def tokens(self) -> int:
        return sum(bucket.tokens for bucket in self.buckets.values())

    def wait(self, excess: int, count: Callable[[Bucket], int], now: int) -> int:
        """Milliseconds until so many of the oldest have left that `excess` is gone."""
        for tick in sorted(self.buckets):
            excess -= count(self.buckets[tick])
            if excess <= 0:
                return end(tick) - now
        return self.reset(now)

    def reset(self, now: int) -> int:
        """Milliseconds until nothing counts any more."""
        return end(max(self.buckets)) - now if self.buckets else 0


def counts(tick: int, now: int) -> bool:
    return abs(now // 1000 - tick) <= SECONDS


def end(tick: int) -> int:
    return (tick + SECONDS + 1) * 1000
