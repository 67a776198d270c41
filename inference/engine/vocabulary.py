"""What the tokens of a model are in bytes, for grammars: they are written in text, and the engine knows no tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inference.pieces import form_of, piece_bytes
from inference.tokenizer_file import read_tokenizer


@dataclass(frozen=True)
class TokenBytes:
    """By token id, up to the model's last one. Where the tokenizer has no such id, the bytes are empty."""

    tokens: list[bytes]
    special: frozenset[int]

    @property
    def without_special(self) -> list[bytes]:
        """As a text shows them: special tokens are left out of it."""
        return [b"" if i in self.special else token for i, token in enumerate(self.tokens)]


def token_bytes(folder: str, size: int) -> TokenBytes | None:
    """Out of the tokenizer's file; None where there is none, or no vocabulary in it."""
    tokenizer = read_tokenizer(Path(folder))
    vocab = tokenizer.get("model", {}).get("vocab")
    if not vocab:
        return None
    form = form_of(tokenizer.get("decoder"))
    pieces = vocab.items() if isinstance(vocab, dict) else ((piece, i) for i, (piece, _) in enumerate(vocab))
    tokens = [b""] * size
    for piece, i in pieces:
        if i < size:
            tokens[i] = piece_bytes(piece, form)
    added = [token for token in tokenizer.get("added_tokens", []) if token["id"] < size]
    for token in added:
        tokens[token["id"]] = token["content"].encode()
    return TokenBytes(tokens, frozenset(token["id"] for token in added if token["special"]))
