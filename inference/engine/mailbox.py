"""Outputs of one request between the engine's socket and a reader. What a slow reader leaves lying is merged."""

from __future__ import annotations

import asyncio
from collections import deque

from inference.protocol.engine import ChoiceOutput, EngineOutput

SEPARATE = 16  # outputs that a reader may be behind before they are merged: it gets one per step as long as it keeps up


class Mailbox:
    """One producer, one reader. Holds a few outputs, so its size is bounded by the request's own output."""

    def __init__(self) -> None:
        self._held: deque[EngineOutput] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, output: EngineOutput) -> None:
        if len(self._held) < SEPARATE:
            self._held.append(output)
        else:
            merge(self._held[-1], output)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> EngineOutput:
        if not self._held:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._held.popleft()


def merge(first: EngineOutput, second: EngineOutput) -> None:
    """Append `second` to `first`, in place."""
    choices = {choice.index: choice for choice in first.choices}
    for choice in second.choices:
        earlier = choices.get(choice.index)
        if earlier is None:
            choices[choice.index] = choice
        else:
            extend(earlier, choice)
    first.choices = list(choices.values())
    first.finished = second.finished
    first.error = second.error
    first.cached_tokens = max(first.cached_tokens, second.cached_tokens)
    if first.prompt_rows is None:
        first.prompt_rows = second.prompt_rows


def extend(earlier: ChoiceOutput, later: ChoiceOutput) -> None:
    earlier.token_ids += later.token_ids
    if later.rows is not None:
        earlier.rows = later.rows if earlier.rows is None else earlier.rows + later.rows
    earlier.finish_reason, earlier.stop_reason = later.finish_reason, later.stop_reason
