"""One choice of a generation, from token ids to what is shown: the core that coupled answers, /derender and a node's text modes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from inference.detokenize import Detokenizer
from inference.protocol.generate import SamplingParams, TokenLogprobs
from inference.stops import StopStrings


class Delta(Struct):
    """What is new of a choice. `token_ids` and `entries` end with the token that completes a stop string."""

    text: str
    token_ids: list[int]
    entries: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True)
class Ending:
    """What ends a choice: stop strings and stop tokens, and whether they are shown."""

    stops: Sequence[str] = ()
    eos_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    include: bool = False
    min_tokens: int = 0


@dataclass(slots=True)
class Choice:
    """Feed it the engine's news of one choice; after `finish_reason` is set nothing more comes."""

    detokenizer: Detokenizer
    ending: Ending
    count: int = 0
    finish_reason: str | None = None
    _strings: StopStrings | None = field(init=False)

    def __post_init__(self) -> None:
        self._strings = StopStrings(self.ending.stops, include=self.ending.include) if self.ending.stops else None

    def feed(
        self, ids: list[int], entries: list[TokenLogprobs] | None, finish_reason: str | None, stop_reason: str | int | None
    ) -> Delta:
        hidden = finish_reason == "stop" and not self.ending.include and self._ends_by_token(ids)
        visible = ids[:-1] if hidden else ids
        if self._strings is None:
            text = self.detokenizer.feed(visible)
        else:
            text, used, matched = self._text_until_stop(self._strings, visible)
            if matched is not None:
                ids, finish_reason, stop_reason = ids[:used], "stop", matched
                entries = None if entries is None else entries[:used]
            elif finish_reason is not None:
                text += self._strings.flush()
        self.count += len(ids)
        self.finish_reason = finish_reason
        return Delta(text, ids, entries, finish_reason, None if stop_reason is None else self._shown_reason(stop_reason))

    def _text_until_stop(self, strings: StopStrings, ids: list[int]) -> tuple[str, int, str | None]:
        """(text, tokens used, the stop string that matched). Token by token, so that nothing after a match is taken."""
        texts = []
        for used, token_id in enumerate(ids, 1):
            text, matched = strings.feed(self.detokenizer.feed_one(token_id), check=self.count + used > self.ending.min_tokens)
            texts.append(text)
            if matched is not None:
                return "".join(texts), used, matched
        return "".join(texts), len(ids), None

    def _ends_by_token(self, ids: list[int]) -> bool:
        return bool(ids) and (ids[-1] in self.ending.eos_ids or ids[-1] in self.ending.stop_ids)

    def _shown_reason(self, reason: str | int) -> str | int | None:
        """A node without a tokenizer reports EOS as the stop token it is there; to everybody else it is no reason."""
        return None if isinstance(reason, int) and reason in self.ending.eos_ids else reason


def skips_specials(params: SamplingParams) -> bool:
    """As rendered: a parser may have asked to keep them, for its markers."""
    return True if params.skip_special_tokens is None else params.skip_special_tokens
