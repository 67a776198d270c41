"""Where every output token went: its place in the text, its bytes, and what it became (reasoning, content, a tool call, markup, the end).

The text is all that the model wrote, special tokens too, so the tokens' bytes, put together, are its UTF-8. Places are code points; tokens
that share a character share its place.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inference.parsers import Span
from inference.protocol.chat import TokenOffset
from inference.tokenizer import Tokenizer


@dataclass(slots=True)
class Waiting:
    """A token whose part is not known yet. `shown`: the place of its first character among those that a parser reads."""

    offset: TokenOffset
    shown: int


class Characters:
    """Counts the characters of a text that comes in bytes. Bytes that are none count as what they are shown as."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole = 0

    @property
    def begun(self) -> int:
        """All so far, the last of which may be part of one."""
        return self._whole + bool(self._open)

    @property
    def _open(self) -> bytes:
        return self._decoder.getstate()[0]

    def add(self, raw: bytes) -> tuple[int, int]:
        """The place [start, end) of these bytes; those that go on with a character begin where it began."""
        goes_on = bool(self._open and raw) and len((self._open + raw[:1]).decode("utf-8", "replace")) == 1
        start = self.begun - goes_on
        self._whole += len(self._decoder.decode(raw))
        return start, max(self.begun, start + bool(raw))

    def resume(self, begun: int, last: bytes) -> None:
        """Go on behind so many, the text's last bytes being these."""
        self._decoder.decode(last)
        self._whole = max(begun - bool(self._open), 0)


class OutputOffsets:
    """One choice's account. A parser decides late, so a token is told when its first character is; the end decides all."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool, parsed: bool) -> None:
        self.tokenizer = tokenizer
        self.parsed = parsed
        self.hidden_ids: frozenset[int] = tokenizer.special_ids if skip_special_tokens else frozenset()
        self.at_once = False
        self.written = Characters()  # all that the model wrote
        self.shown = Characters()  # of this, what is no hidden token
        self.decided = 0  # characters whose part is known
        self.spans: deque[Span] = deque()
        self.passed = 0  # characters of the spans that are gone
        self.waiting: deque[Waiting] = deque()

    def resume(self, written: int, last_ids: Sequence[int]) -> None:
        """Go on behind so many characters, of which the last tokens suffice. Without a parser all that is shown is content, and nothing
        waits."""
        self.at_once = True
        self.written.resume(written, b"".join([self.tokenizer.raw(i) for i in last_ids]))

    def feed(self, ids: Sequence[int], spans: Iterable[Span], *, ends: bool, finished: bool, stopped: bool) -> list[TokenOffset]:
        """The tokens whose part is known now, in their order.

        Args:
            ends: the last id is what ended the choice. `stopped`: a stop string did, and its characters are in no span.
        """
        for span in spans:
            self.spans.append(span)
            self.decided += span.length
        for at, token_id in enumerate(ids):
            self.take(token_id, ends=ends and at == len(ids) - 1)
        told = []
        while self.waiting and (self.is_decided(self.waiting[0]) or finished):
            told.append(self.settle(self.waiting.popleft(), stopped))
        return told

    def take(self, token_id: int, *, ends: bool) -> None:
        raw = self.tokenizer.raw(token_id)
        start, end = self.written.add(raw)
        offset = TokenOffset(token_id=token_id, start=start, end=end, bytes=list(raw))
        place = 0
        if ends:
            offset.part = "stop"
        elif token_id in self.hidden_ids or not raw:
            offset.part = "markup"
        else:
            place, _ = self.shown.add(raw)
            if self.at_once:
                offset.part = "content"
        self.waiting.append(Waiting(offset, place))

    def is_decided(self, token: Waiting) -> bool:
        return token.offset.part is not None or token.shown < self.decided

    def settle(self, token: Waiting, stopped: bool) -> TokenOffset:
        """With its part: that of the span which its first character lies in. No span tells of a stop string, or of half a character. The
        latter is content where no parser is: a stateless call can tell no other, and at once."""
        if token.offset.part is None:
            while self.spans and token.shown >= self.passed + self.spans[0].length:
                self.passed += self.spans.popleft().length
            if self.spans:
                token.offset.part, token.offset.call = self.spans[0].part, self.spans[0].call
            else:
                token.offset.part = "stop" if stopped else "markup" if self.parsed else "content"
        return token.offset
