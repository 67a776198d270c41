"""A node's stream chunks: decoded with their logprobs typed, and merged when several came at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from inference.protocol.generate import GenerateChunk, GenerateLogprobs, TokensChunk

decode_chunk = msgspec.json.Decoder(TokensChunk).decode
SEPARATE = 16  # chunks in one read that pass as they are: whoever keeps up gets one per step


def merge(chunks: Sequence[GenerateChunk]) -> Iterator[GenerateChunk]:
    """The same news, where there are many, in as few chunks as order allows: one per choice. What carries no choice stays alone."""
    if len(chunks) <= SEPARATE:
        yield from chunks
        return
    pending: dict[int, GenerateChunk] = {}
    for chunk in chunks:
        if len(chunk.choices) != 1:
            yield from pending.values()
            pending.clear()
            yield chunk
            continue
        index = chunk.choices[0].index
        earlier = pending.get(index)
        if earlier is None:
            pending[index] = chunk
        else:
            extend(earlier, chunk)
    yield from pending.values()


def extend(earlier: GenerateChunk, later: GenerateChunk) -> None:
    """Append `later` to `earlier`, in place; both hold one choice of one index."""
    into, new = earlier.choices[0], later.choices[0]
    into.token_ids = [*(into.token_ids or ()), *(new.token_ids or ())]
    into.logprobs = joined(into.logprobs, new.logprobs)
    into.finish_reason, into.stop_reason = new.finish_reason, new.stop_reason
    into.weight_versions = new.weight_versions
    earlier.usage = later.usage
    for name in ("prompt_token_ids", "prompt_logprobs", "metrics"):
        if getattr(earlier, name) is UNSET:
            setattr(earlier, name, getattr(later, name))


def joined(first: GenerateLogprobs | None, second: GenerateLogprobs | None) -> GenerateLogprobs | None:
    if first is None or second is None:
        return first if second is None else second
    return GenerateLogprobs(content=[*(first.content or ()), *(second.content or ())])
