"""From deltas to a message, and the reason why it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import UNSET

from inference.parsers.emission import ParsedDelta
from inference.parsers.forcing import ToolChoice, is_forced, is_named
from inference.protocol.chat import ChatMessage, FunctionCall, ToolCall, ToolCallDelta


@dataclass(slots=True)
class CallParts:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)

    def call(self) -> ToolCall:
        return ToolCall(id=self.id, function=FunctionCall(name=self.name, arguments="".join(self.arguments)))


class MessageBuilder:
    """Folds deltas, as a client of the stream would."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[CallParts] = []

    def add(self, delta: ParsedDelta) -> None:
        if delta.reasoning is not None:
            self._reasoning.append(delta.reasoning)
        if delta.content is not None:
            self._content.append(delta.content)
        for part in delta.tool_calls:
            self._add_call(part)

    def _add_call(self, part: ToolCallDelta) -> None:
        if part.id is not None and part.function.name is not None:
            self._calls.append(CallParts(part.id, part.function.name))
        if part.function.arguments is not None:
            self._calls[part.index].arguments.append(part.function.arguments)

    def message(self, tool_choice: ToolChoice = None) -> ChatMessage:
        """Nothing said is null, except beside a forced call: there it is ""."""
        calls = [parts.call() for parts in self._calls]
        silence = "" if calls and is_forced(tool_choice) else None
        return ChatMessage(
            content="".join(self._content) if self._content else silence,
            reasoning="".join(self._reasoning) if self._reasoning else None,
            tool_calls=calls if calls else UNSET,
        )


def assemble(deltas: Iterable[ParsedDelta], tool_choice: ToolChoice = None) -> ChatMessage:
    builder = MessageBuilder()
    for delta in deltas:
        builder.add(delta)
    return builder.message(tool_choice)


def finish_reason(engine_reason: str | None, *, called: bool, tool_choice: ToolChoice) -> str | None:
    """The reason to report. Only a stop becomes `tool_calls`, and only if the model chose to call: a named call was no choice."""
    if engine_reason == "stop" and called and not is_named(tool_choice):
        return "tool_calls"
    return engine_reason
