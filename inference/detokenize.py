"""Incremental detokenization: token ids in, text out as soon as it is certain, the same text however the ids are cut (pipeline.md 7).

A window of pieces is decoded twice per token, once without it and once with it; what the longer text adds is new. A text that ends in
U+FFFD may still become a character, so it waits. The window stays a handful of pieces however long the output. Where texts just follow one
another, in byte-level vocabularies, whole characters behind whole characters need no decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.protocol.derender import StreamState
from inference.tokenizer import REPLACEMENT, Tokenizer

SEED_IDS = 7  # of the prompt, so that the first output token keeps its leading space
SEED_CONTEXT = 5  # of these, the last ones are decoded with it
LONG_WAIT = 16  # pieces without a character: garbage, of which only the end is looked at, or an output of it would cost its square
LONGEST_CHARACTER = 8  # in pieces, with room to spare


class Detokenizer:
    """One choice's window: `pieces[prefix:read]` is emitted already and gives the context, the rest is not."""

    __slots__ = ("_hidden", "_settled", "_tokenizer", "pieces", "prefix", "read")

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._hidden: frozenset[int] = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._settled = False  # nothing waits, the window ends with a character, and no decoder would join it to what follows
        self.pieces: list[str] = []
        self.prefix = 0
        self.read = 0

    def seed(self, prompt_token_ids: Sequence[int] | None) -> None:
        """Before the first id. A prompt's last ids suffice; without any, a SentencePiece output starts without its space."""
        if prompt_token_ids is None or self.pieces:
            return
        self.pieces = [piece for i in prompt_token_ids[-SEED_IDS:] if (piece := self._piece(i)) is not None]
        self.read = len(self.pieces)
        self.prefix = max(self.read - SEED_CONTEXT, 0)

    def feed(self, ids: Sequence[int]) -> str:
        """The text that these ids make certain."""
        if len(ids) == 1:
            return self.feed_one(ids[0])
        return "".join([self.feed_one(i) for i in ids])

    def feed_one(self, token_id: int) -> str:
        if self._settled:
            token = self._tokenizer.text(token_id)
            if token.text and not token.broken and token_id not in self._hidden and (piece := self._tokenizer.pieces[token_id]) is not None:
                self.pieces, self.prefix, self.read = [piece], 0, 1
                return token.text
        return self._decode_one(token_id)

    def _decode_one(self, token_id: int) -> str:
        piece = self._piece(token_id)
        if piece is None:
            return ""
        pieces = self.pieces
        pieces.append(piece)
        self._settled = False
        decode = self._tokenizer.decode_pieces
        if not piece or self._waits_in_vain():
            return ""
        old = decode(pieces[self.prefix : self.read])
        new = decode(pieces[self.prefix :] if self.prefix else pieces)
        if len(new) <= len(old) or new.endswith(REPLACEMENT):
            return ""
        del pieces[: self.read]
        self.prefix, self.read = 0, len(pieces)
        self._settled = self._tokenizer.concatenates
        return new[len(old) :]

    def _waits_in_vain(self) -> bool:
        """Empty pieces, of ids outside the vocabulary, do not count: they part the bytes of a character in some decoders, not in all."""
        pieces, start, left = self.pieces, len(self.pieces), LONGEST_CHARACTER
        if start - self.read <= LONG_WAIT:
            return False
        while start > self.read and left:
            start -= 1
            left -= bool(pieces[start])
        return self._tokenizer.decode_pieces(pieces[start:]).endswith(REPLACEMENT)

    def restore(self, state: StreamState) -> None:
        """Go on from where another call stopped. Offsets past the window are the client's business: they only hide its own text."""
        self.pieces = list(state.prev_tokens)
        self.prefix, self.read = state.prefix_offset, state.read_offset
        self._settled = False

    def save(self, state: StreamState, *, fed: bool) -> None:
        """After a chunk with ids the window starts at 0: what lies before is of no use to anybody."""
        start = self.prefix if fed else 0
        state.prev_tokens = self.pieces[start:]
        state.prefix_offset = self.prefix - start
        state.read_offset = max(self.read - start, 0)

    def _piece(self, token_id: int) -> str | None:
        """None for a special token that is skipped; "" outside the vocabulary."""
        if token_id in self._hidden:
            return None
        piece = self._tokenizer.piece(token_id)
        return "" if piece is None else piece
