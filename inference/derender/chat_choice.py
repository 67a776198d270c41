"""A chat choice: content, reasoning and tool calls out of token ids, with the logprobs that go with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from inference.derender.choice import Choice, Delta, Ending
from inference.detokenize import Detokenizer
from inference.logprobs import TokenNamer
from inference.model import ServedModel
from inference.output_offsets import OutputOffsets
from inference.parsers import MessageBuilder, ParsedDelta, Parser, Span, finish_reason
from inference.parsing import choice_parser, hides_tokens
from inference.protocol.chat import ChatLogprobs, ChatMessage, TokenOffset
from inference.protocol.generate import ParseContext, TokenLogprobs


class ChatNews(Struct):
    """What is new of a choice, in the chat's terms. Without a parser all text is content, "" where there is none."""

    parsed: ParsedDelta
    token_ids: list[int] | None
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    offsets: list[TokenOffset] | None = None

    @property
    def silent(self) -> bool:
        parsed = self.parsed
        return not parsed.content and parsed.reasoning is None and not parsed.tool_calls


class ChatChoice:
    """Lives as long as its choice. Hidden reasoning takes the tokens and logprobs with it that would give it away."""

    __slots__ = ("choice", "context", "detokenizer", "ending_ids", "hidden", "namer", "offsets", "parser")

    def __init__(
        self,
        context: ParseContext,
        model: ServedModel,
        prompt_token_ids: Sequence[int] | None,
        namer: TokenNamer,
        *,
        skip_special_tokens: bool,
        ending: Ending,
        tool_call_ids: Sequence[str] = (),
        parses: bool = True,
        offsets: bool = False,
    ) -> None:
        self.context = context
        self.detokenizer = Detokenizer(model.tokenizer, skip_special_tokens=skip_special_tokens)
        self.detokenizer.seed(prompt_token_ids)
        self.choice = Choice(self.detokenizer, ending)
        self.namer = namer
        prompt = () if prompt_token_ids is None else prompt_token_ids
        self.hidden = parses and hides_tokens(context, model)
        wanted = offsets and not self.hidden
        parser = choice_parser(context, model, prompt, tool_call_ids=tool_call_ids, spans=wanted) if parses else None
        self.parser: Parser | None = parser
        self.ending_ids = frozenset(model.eos_token_ids) | ending.stop_ids
        parsed = self.parser is not None
        self.offsets = OutputOffsets(model.tokenizer, skip_special_tokens=skip_special_tokens, parsed=parsed) if wanted else None

    def feed(
        self, ids: list[int], entries: list[TokenLogprobs] | None, reason: str | None, stop_reason: str | int | None
    ) -> ChatNews:
        delta = self.choice.feed(ids, entries, reason, stop_reason)
        logprobs = None if delta.entries is None or self.hidden else self.namer.chat(delta.entries)
        self.namer.pass_by(delta.token_ids)
        shown_ids = None if self.hidden else delta.token_ids
        reason = delta.finish_reason
        if self.parser is None:
            parsed = ParsedDelta(content=delta.text)
        else:
            parsed = self.parser.feed(delta.text, delta.token_ids, reason is not None)
            if reason is not None:
                reason = finish_reason(reason, called=self.called, tool_choice=self.context.tool_choice)
        offsets = None if self.offsets is None else self._told(self.offsets, delta, parsed)
        return ChatNews(parsed, shown_ids, logprobs, reason, delta.stop_reason, offsets)

    @property
    def called(self) -> bool:
        return self.parser is not None and bool(self.parser.tool_call_ids)

    def _told(self, offsets: OutputOffsets, delta: Delta, parsed: ParsedDelta) -> list[TokenOffset]:
        spans = [Span("content", len(delta.text))] if self.parser is None else parsed.spans
        stopped = isinstance(delta.stop_reason, str)
        ends = delta.finish_reason == "stop" and not stopped and delta.token_ids[-1:] != [] and delta.token_ids[-1] in self.ending_ids
        return offsets.feed(delta.token_ids, spans, ends=ends, finished=delta.finish_reason is not None, stopped=stopped)

    def flush(self) -> ChatNews:
        """What a parser still held, of an answer that came to no end."""
        parsed = ParsedDelta() if self.parser is None else self.parser.feed("", (), True)
        told = None if self.offsets is None else self.offsets.feed((), parsed.spans, ends=False, finished=True, stopped=False)
        return ChatNews(parsed, [], offsets=told)

    def message(self, news: Iterable[ChatNews]) -> ChatMessage:
        """All deltas as one message."""
        builder = MessageBuilder()
        for part in news:
            builder.add(part.parsed)
        return builder.message(self.context.tool_choice)


def whole_logprobs(news: Iterable[ChatNews]) -> ChatLogprobs | None:
    parts = [part.logprobs.content for part in news if part.logprobs is not None and part.logprobs.content is not None]
    return ChatLogprobs(content=[entry for part in parts for entry in part]) if parts else None


def whole_offsets(news: Iterable[ChatNews]) -> list[TokenOffset] | None:
    parts = [part.offsets for part in news if part.offsets is not None]
    return [offset for part in parts for offset in part] if parts else None
