"""Token ids for property tests, of every family: real text in many scripts, and anything between."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.inference.samples import model

# R and R2 are the case list's, small and made by hand; the others are of real models.
EVERY = ("R", "R2", "smollm2", "llama2", "qwen3", "tekken")
WORDS = ["Hello", " there", "é", "日本語", "😀", "👩‍👩‍👧", " 🎉", "e\u0301", "\u0301", " ", "\n", "the end.", "नमस्ते", "ไทย", "한국", "\x00"]
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def encoded(name: str) -> list[list[int]]:
    tokenizer = model(name).tokenizer
    return [ids for word in [*WORDS, "\ufffd"] if (ids := tokenizer.encode(word, add_special_tokens=False))]


@cache
def broken(name: str) -> list[int]:
    """The ids that hold part of a character."""
    tokenizer = model(name).tokenizer
    return [i for i in range(tokenizer.vocab_size) if tokenizer.text(i).broken]


def ids_of(name: str, min_size: int = 1) -> st.SearchStrategy[list[int]]:
    """Real text, then anything: stray bytes, special tokens, ids outside the vocabulary."""
    tokenizer = model(name).tokenizer
    word = st.sampled_from(encoded(name))
    anything = st.integers(0, tokenizer.vocab_size + 2).map(lambda i: [i])
    stray = st.sampled_from(broken(name)).map(lambda i: [i])
    special = st.sampled_from(sorted(tokenizer.special_ids)).map(lambda i: [i])
    parts = st.lists(st.one_of(word, word, word, anything, stray, special), min_size=min_size, max_size=12)
    return parts.map(lambda found: [i for part in found for i in part])


@st.composite
def cuts_of(draw: st.DrawFn, ids: Sequence[int]) -> list[list[int]]:
    """All at once, one at a time, or in pieces of which some are empty."""
    bounds = st.one_of(st.just([]), st.just(list(range(len(ids)))), st.lists(st.integers(0, len(ids)), max_size=6))
    return [list(ids[a:b]) for a, b in pairwise([0, *sorted(draw(bounds)), len(ids)])]


@st.composite
def cut_ids(draw: st.DrawFn, name: str) -> tuple[list[int], list[list[int]]]:
    """(ids, the same in pieces)."""
    ids = draw(ids_of(name))
    return ids, draw(cuts_of(ids))


def lps_of(ids: Sequence[int], vocabulary: int) -> dict[str, Any]:
    """Two candidates each, the second from anywhere."""
    rows = [[(i, -0.5, 1), ((i * 31 + 7) % vocabulary, -1.5, 2)] for i in ids]
    tops = [[{"token_id": i, "logprob": value, "rank": rank} for i, value, rank in row] for row in rows]
    return {"content": [{"token_id": i, "logprob": -0.5, "rank": 1, "top_logprobs": row} for i, row in zip(ids, tops, strict=True)]}
