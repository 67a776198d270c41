"""`stream_interval`: a choice's news wait until there are that many tokens. The first ones and the last never wait."""

from __future__ import annotations

from inference.logprobs import entries_of
from inference.protocol.generate import GenerateChunkChoice, GenerateLogprobs
from inference.values import given


class Intervals:
    """Parts go in as they come; what comes out has at least `interval` tokens, or None waits."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.begun: set[int] = set()
        self.waiting: dict[int, GenerateChunkChoice] = {}

    def gather(self, part: GenerateChunkChoice) -> GenerateChunkChoice | None:
        earlier = self.waiting.pop(part.index, None)
        gathered = part if earlier is None else joined(earlier, part)
        ripe = len(given(gathered.token_ids, [])) >= self.interval or part.index not in self.begun
        if part.finish_reason is None and not ripe:
            self.waiting[part.index] = gathered
            return None
        if gathered.token_ids:
            self.begun.add(part.index)
        return gathered


def joined(earlier: GenerateChunkChoice, later: GenerateChunkChoice) -> GenerateChunkChoice:
    first, second = entries_of(earlier.logprobs, "logprobs"), entries_of(later.logprobs, "logprobs")
    return GenerateChunkChoice(
        index=later.index,
        token_ids=[*given(earlier.token_ids, []), *given(later.token_ids, [])],
        logprobs=None if first is None and second is None else GenerateLogprobs(content=[*given(first, []), *given(second, [])]),
        finish_reason=later.finish_reason,
        stop_reason=later.stop_reason,
    )
