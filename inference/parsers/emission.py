"""What a parser brings out: one delta per feed, and an account of where every character went."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from msgspec import Struct

from inference.protocol.chat import FunctionCall, ToolCallDelta

Part = Literal["reasoning", "content", "tool_call", "markup"]


class Span(Struct, gc=False):
    """The next `length` characters of the model's text became `part`.

    Markup is what is shown nowhere: markers, the JSON around arguments, dropped text.
    """

    part: Part
    length: int
    call: int | None = None


class ParsedDelta(Struct, gc=False):
    """What is new since the last feed. None where nothing is.

    `spans` cover the text in order and without gaps, but lag behind it: text that is held back is accounted for when it is decided.
    """

    reasoning: str | None = None
    content: str | None = None
    tool_calls: list[ToolCallDelta] = []
    spans: list[Span] = []

    def __bool__(self) -> bool:
        return self.reasoning is not None or self.content is not None or bool(self.tool_calls)


class Run(Struct):
    """The middle of a part: text without any of `ends` goes all into it, so that the machines need not look at it."""

    part: Part
    ends: re.Pattern[str]
    call: int | None = None

    def delta(self, text: str, accounts: bool) -> ParsedDelta:
        if not text:
            return ParsedDelta()
        spans = [Span(self.part, len(text), self.call)] if accounts else []
        if self.call is not None:
            return ParsedDelta(None, None, [ToolCallDelta(index=self.call, function=FunctionCall(arguments=text))], spans)
        return ParsedDelta(text, None, [], spans) if self.part == "reasoning" else ParsedDelta(None, text, [], spans)

    def ending_too(self, ends: re.Pattern[str]) -> Run:
        """The same, for two machines that look for different ends."""
        return Run(self.part, either(self.ends, ends), self.call)


@cache
def either(one: re.Pattern[str], other: re.Pattern[str]) -> re.Pattern[str]:
    return one if one == other else re.compile(f"{one.pattern}|{other.pattern}")


class CallPieces(Struct):
    id: str | None = None
    name: str | None = None
    arguments: list[str] = []

    def delta(self, index: int) -> ToolCallDelta:
        arguments = "".join(self.arguments) if self.arguments else None
        kind = None if self.id is None else "function"
        return ToolCallDelta(index=index, id=self.id, type=kind, function=FunctionCall(name=self.name, arguments=arguments))


class Emission:
    """Gathers one delta. Each method takes a piece of the model's text exactly once, in order, and says what it became.

    `accounts`: spans are wanted.
    """

    def __init__(self, *, show_reasoning: bool = True, accounts: bool = True) -> None:
        self.show_reasoning = show_reasoning
        self.accounts = accounts
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
            if index not in self._calls:
                self._calls[index] = CallPieces()
            self._calls[index].arguments.append(arguments)
        self._account("tool_call", text, index)

    def _account(self, part: Part, text: str, call: int | None = None) -> None:
        if not (text and self.accounts):
            return
        spans = self._spans
        if spans and spans[-1].part == part and spans[-1].call == call:
            spans[-1].length += len(text)
        else:
            spans.append(Span(part, len(text), call))

    def drain(self) -> ParsedDelta:
        """The delta so far; the next one begins."""
        delta = ParsedDelta(spans=self._spans)
        self._spans = []
        if self._reasoning:
            delta.reasoning, self._reasoning = "".join(self._reasoning), []
        if self._content:
            delta.content, self._content = "".join(self._content), []
        if self._calls:
            delta.tool_calls, self._calls = [pieces.delta(index) for index, pieces in self._calls.items()], {}
        return delta
