"""What a parser brings out: one delta per feed, and an account of where every character went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from inference.protocol.chat import FunctionCall, ToolCallDelta

Part = Literal["reasoning", "content", "tool_call", "markup"]


class Span(NamedTuple):
    """The next `length` characters of the model's text became `part`.

    Markup is what is shown nowhere: markers, the JSON around arguments, dropped text.
    """

    part: Part
    length: int
    call: int | None = None


@dataclass(slots=True)
class ParsedDelta:
    """What is new since the last feed. None where nothing is.

    `spans` cover the text in order and without gaps, but lag behind it: text that is held back is accounted for when it is decided.
    """

    reasoning: str | None = None
    content: str | None = None
    tool_calls: list[ToolCallDelta] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.reasoning is not None or self.content is not None or bool(self.tool_calls)


@dataclass(slots=True)
class CallPieces:
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)

    def delta(self, index: int) -> ToolCallDelta:
        arguments = "".join(self.arguments) if self.arguments else None
        kind = None if self.id is None else "function"
        return ToolCallDelta(index=index, id=self.id, type=kind, function=FunctionCall(name=self.name, arguments=arguments))


class Emission:
    """Gathers one delta. Each method takes a piece of the model's text exactly once, in order, and says what it became."""

    def __init__(self, *, show_reasoning: bool = True) -> None:
        self.show_reasoning = show_reasoning
        self._clear()

    def _clear(self) -> None:
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: dict[int, CallPieces] = {}
        self._spans: list[Span] = []

    def reasoning(self, text: str) -> None:
        if text and self.show_reasoning:
            self._reasoning.append(text)
        self._account("reasoning", text)

    def content(self, text: str) -> None:
        if text:
            self._content.append(text)
        self._account("content", text)

    def markup(self, text: str) -> None:
        self._account("markup", text)

    def open_call(self, index: int, call_id: str, name: str) -> None:
        self._calls[index] = CallPieces(call_id, name)

    def arguments(self, index: int, text: str, arguments: str) -> None:
        """`text` is what the model wrote, `arguments` the JSON that it stands for; either may be empty."""
        if arguments:
            self._calls.setdefault(index, CallPieces()).arguments.append(arguments)
        self._account("tool_call", text, index)

    def _account(self, part: Part, text: str, call: int | None = None) -> None:
        if not text:
            return
        last = self._spans[-1] if self._spans else None
        if last is not None and last.part == part and last.call == call:
            self._spans[-1] = Span(part, last.length + len(text), call)
        else:
            self._spans.append(Span(part, len(text), call))

    def drain(self) -> ParsedDelta:
        """The delta so far; the next one begins."""
        if not self._spans and not self._calls:
            return ParsedDelta()
        delta = ParsedDelta(
            reasoning="".join(self._reasoning) if self._reasoning else None,
            content="".join(self._content) if self._content else None,
            tool_calls=[pieces.delta(index) for index, pieces in self._calls.items()] if self._calls else [],
            spans=self._spans,
        )
        self._clear()
        return delta
