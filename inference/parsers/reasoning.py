"""Splits an answer into what the model thought and what it says.

Whether an answer begins inside the reasoning is the prompt's doing: some templates open it, some close it right away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from inference.parsers.emission import Emission, Run
from inference.parsers.source import Markers, Source
from inference.parsers.tool_parser import State, Vocabulary


class Answer(Protocol):
    """What reads the text that is not reasoning."""

    @property
    def run(self) -> Run | None:
        """The part that the text read so far ends in the middle of, if it does."""

    def feed(self, text: str, finished: bool) -> None: ...

    def drop(self, text: str) -> None:
        """`text` came here in the output, and is shown nowhere."""


class ReasoningParser:
    """Reasoning up to an end marker, then the answer. The start marker may be left out, and neither is shown."""

    start: ClassVar[str] = "<think>"
    end: ClassVar[str] = "</think>"
    also_end: ClassVar[tuple[str, ...]] = ()  # ends the reasoning and belongs to the answer
    needs_tokens: ClassVar[bool] = True
    opens_late: ClassVar[bool] = False  # a start marker in the answer opens the reasoning

    def __init__(self, out: Emission, answer: Answer, *, thinking: bool) -> None:
        self.out = out
        self.answer = answer
        self.over = False  # all text from here on is the answer's
        self.source = Source()
        self.markers = Markers(self.start, self.end, *self.also_end)
        self.state: State = self.reasoning if thinking else self.before

    @classmethod
    def check(cls, name: str, vocabulary: Vocabulary) -> None:
        """Raises ValueError if the tokenizer lacks the markers: the prompt could not be read, and the model is of another family."""
        missing = [marker for marker in (cls.start, cls.end) if vocabulary.token_to_id(marker) is None]
        if cls.needs_tokens and missing:
            raise ValueError(f"The reasoning parser {name} needs a tokenizer that has {' and '.join(missing)} as single tokens.")

    @classmethod
    def enabled(cls, template_kwargs: Mapping[str, Any] | None) -> bool:
        return True

    @classmethod
    def opens(cls, vocabulary: Vocabulary, prompt: Sequence[int]) -> bool:
        """Whether the answer to `prompt` begins inside the reasoning: unless the last marker in it is an end."""
        return last_index(prompt, vocabulary.token_to_id(cls.start)) >= last_index(prompt, vocabulary.token_to_id(cls.end))

    def feed(self, text: str, finished: bool) -> None:
        self.source.push(text, finished)
        while self.state():
            pass
        if finished:
            self.answer.feed("", True)

    @property
    def run(self) -> Run | None:
        if self.source.held:
            return None
        if self.state == self.reasoning:
            return Run("reasoning", self.markers.first) if self.out.show_reasoning else None
        return self.run_of_answer()

    def run_of_answer(self) -> Run | None:
        return self.answer.run if self.over else None

    def before(self) -> bool:
        return self.after()

    def reasoning(self) -> bool:
        text, marker = self.source.until(self.markers)
        self.out.reasoning(text)
        if marker in (self.start, self.end):
            self.out.markup(self.source.take_word(marker))
        if marker in (self.end, *self.also_end):
            self.state = self.after
        return marker is not None

    def after(self) -> bool:
        return self.rest()

    def rest(self) -> bool:
        self.over = True
        self.answer.feed(self.source.rest(), False)
        return False


class DeepSeekR1(ReasoningParser):
    """Without an end marker everything is reasoning; a second one stands in the answer as it is."""


class Qwen3(ReasoningParser):
    """A tool call ends the reasoning too; until one begins, a further end marker is swallowed."""

    also_end = ("<tool_call>",)
    stray: ClassVar[Markers] = Markers("</think>", "<tool_call>")

    @classmethod
    def enabled(cls, template_kwargs: Mapping[str, Any] | None) -> bool:
        return template_kwargs is None or template_kwargs.get("enable_thinking") is not False

    def after(self) -> bool:
        text, marker = self.source.until(self.stray)
        self.answer.feed(text, False)
        if marker == self.end:
            self.answer.drop(self.source.take_word(marker))
        elif marker is not None:
            self.state = self.rest
        return marker is not None

    def run_of_answer(self) -> Run | None:
        run = self.answer.run
        return run if run is None or self.over else run.ending_too(self.stray.first)


class Mistral(ReasoningParser):
    """Reasoning only where the prompt or the model opens it, and once; a lone end marker is swallowed."""

    start = "[THINK]"
    end = "[/THINK]"
    opens_late = True
    needs_tokens = False  # older tokenizers of the family lack them, and their models do not think
    first: ClassVar[Markers] = Markers("[THINK]", "[/THINK]", "[TOOL_CALLS]")

    @classmethod
    def opens(cls, vocabulary: Vocabulary, prompt: Sequence[int]) -> bool:
        return last_index(prompt, vocabulary.token_to_id(cls.start)) > last_index(prompt, vocabulary.token_to_id(cls.end))

    def before(self) -> bool:
        text, marker = self.source.until(self.first)
        self.answer.feed(text, marker == self.start)
        if marker is None:
            return False
        if marker == self.start:
            self.out.markup(self.source.take_word(marker))
        elif marker == self.end:
            self.answer.drop(self.source.take_word(marker))
        self.state = self.reasoning if marker == self.start else self.rest
        return True


def last_index(ids: Sequence[int], wanted: int | None) -> int:
    """Where `wanted` stands last, -1 if nowhere. A prompt can be long, so the search runs in C."""
    backwards = list(reversed(ids))
    return len(backwards) - 1 - backwards.index(wanted) if wanted in backwards else -1
