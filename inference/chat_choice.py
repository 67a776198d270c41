"""A chat choice: text, reasoning and tool calls out of token ids, with the logprobs that go with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from inference.choice import Choice, OutputParser
from inference.logprobs import TokenNamer
from inference.protocol.chat import ChatLogprobs, ChatMessage, FunctionCall, ToolCall, ToolCallDelta
from inference.protocol.generate import TokenLogprobs


@dataclass(slots=True)
class ChatNews:
    """What is new of a choice, in the chat's terms. Without a parser all text is content, "" where there is none."""

    content: str | None
    token_ids: list[int] | None
    logprobs: ChatLogprobs | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class ChatChoice:
    """`hidden`: reasoning is not to be shown, so neither are the tokens and logprobs that would give it away (pipeline.md 8.6).
    `forced_call`: the request names the tool; such an answer ends with "stop" (13)."""

    choice: Choice
    namer: TokenNamer
    parser: OutputParser | None = None
    hidden: bool = False
    forced_call: bool = False
    called: bool = False

    def feed(
        self, ids: list[int], entries: list[TokenLogprobs] | None, finish_reason: str | None, stop_reason: str | int | None
    ) -> ChatNews:
        delta = self.choice.feed(ids, entries, finish_reason, stop_reason)
        logprobs = None if delta.entries is None or self.hidden else self.namer.chat(delta.entries)
        self.namer.pass_by(delta.token_ids)
        shown_ids = None if self.hidden else delta.token_ids
        if self.parser is None:
            return ChatNews(delta.text, shown_ids, logprobs, None, [], delta.finish_reason, delta.stop_reason)
        parsed = self.parser.feed(delta.text, delta.token_ids, delta.finish_reason is not None)
        self.called = self.called or bool(parsed.tool_calls)
        reason = self._reason(delta.finish_reason)
        return ChatNews(parsed.content, shown_ids, logprobs, parsed.reasoning, parsed.tool_calls, reason, delta.stop_reason)

    def _reason(self, finish_reason: str | None) -> str | None:
        return "tool_calls" if finish_reason == "stop" and self.called and not self.forced_call else finish_reason


def whole_message(news: Iterable[ChatNews], *, empty_content: bool = False) -> ChatMessage:
    """All deltas of a choice as one message. `empty_content`: calls without text leave "", where a forced call does (pipeline.md 12)."""
    contents: list[str] = []
    reasoning: list[str] = []
    calls: dict[int, ToolCall] = {}
    for part in news:
        if part.content is not None:
            contents.append(part.content)
        if part.reasoning is not None:
            reasoning.append(part.reasoning)
        for delta in part.tool_calls:
            add_call(calls, delta)
    message = ChatMessage(content="".join(contents) if contents else None, reasoning="".join(reasoning) if reasoning else None)
    if calls:
        message.tool_calls = [calls[index] for index in sorted(calls)]
        if message.content is None and empty_content:
            message.content = ""
    return message


def add_call(calls: dict[int, ToolCall], delta: ToolCallDelta) -> None:
    call = calls.setdefault(delta.index, ToolCall(id="", function=FunctionCall(name="", arguments="")))
    if delta.id is not None:
        call.id = delta.id
    if delta.function.name is not None:
        call.function.name = delta.function.name
    if delta.function.arguments is not None:
        call.function.arguments = f"{call.function.arguments}{delta.function.arguments}"


def whole_logprobs(news: Iterable[ChatNews]) -> ChatLogprobs | None:
    parts = [part.logprobs.content for part in news if part.logprobs is not None and part.logprobs.content is not None]
    return ChatLogprobs(content=[entry for part in parts for entry in part]) if parts else None
