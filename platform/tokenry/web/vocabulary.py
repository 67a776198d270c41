"""A vocabulary read backwards. Logprobs name a candidate by its text or by its id; whoever looks at it wants both."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

from inference.tokenizer import Tokenizer


def named(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens whose text this is: one nearly always, several where a vocabulary has twins, none for a part of a character."""
    return by_text(tokenizer).get(text, [])


def spelled(tokenizer: Tokenizer, token_id: int) -> dict[str, Any]:
    token = tokenizer.text(token_id)
    return {"text": token.text, "bytes": None if token.broken else token.bytes}


@lru_cache(maxsize=8)
def by_text(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """A second of work for a large vocabulary, once per process: done when somebody first looks, not when the server starts."""
    ids: dict[str, list[int]] = defaultdict(list)
    for token_id in range(tokenizer.vocab_size):
        token = tokenizer.text(token_id)
        if not token.broken:
            ids[token.text].append(token_id)
    return dict(ids)
