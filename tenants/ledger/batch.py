"""What waits to be written, in the order in which it must be: rows begin, go on, and end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tenants.models import Entry


@dataclass(frozen=True)
class Outcome:
    """How a request ended. Cached tokens are part of the prompt's."""

    id: str
    status: str
    at: datetime
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass
class Batch:
    """`progress` is the number of tokens sent so far, by row; `beat` says that the process is alive."""

    started: list[Entry] = field(default_factory=list)
    progress: Mapping[str, int] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    beat: bool = False

    def __len__(self) -> int:
        return len(self.started) + len(self.progress) + len(self.outcomes) + self.beat

    def one_by_one(self) -> Iterator[Batch]:
        """The same in single steps, in the same order, so that one bad record cannot hold up the others."""
        for entry in self.started:
            yield Batch(started=[entry])
        yield Batch(progress=self.progress, beat=self.beat)
        for outcome in self.outcomes:
            yield Batch(outcomes=[outcome])

    def take(self, *, outcomes: bool) -> Batch:
        """Everything, or all but the outcomes, which then go on waiting."""
        taken = Batch(self.started, self.progress, self.outcomes if outcomes else [], self.beat)
        self.started, self.progress, self.beat = [], {}, False
        if outcomes:
            self.outcomes = []
        return taken
