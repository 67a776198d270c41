"""One choice's parser: the reasoning first, then the tool calls, over one stream of text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from inference.parsers.emission import Emission, ParsedDelta, Run
from inference.parsers.forcing import parses_tools
from inference.parsers.reasoning import Answer, ReasoningParser
from inference.parsers.registry import find_reasoning_parser, find_tool_parser
from inference.parsers.tool_output import NewId, ToolOutput
from inference.parsers.tool_parser import Tools, Vocabulary

NEVER = re.compile("(?!)")


class PlainAnswer:
    """Without tools all of the answer is content."""

    def __init__(self, out: Emission) -> None:
        self.out = out
        self.run = Run("content", NEVER)

    def feed(self, text: str, finished: bool) -> None:
        self.out.content(text)

    def drop(self, text: str) -> None:
        self.out.markup(text)


class ReasoningTokens:
    """Counts the ids of the reasoning, markers aside."""

    def __init__(self, kind: type[ReasoningParser], vocabulary: Vocabulary, *, thinking: bool) -> None:
        self.count = 0
        self.over = False  # no token to come is reasoning
        self._thinking = thinking
        self._start = vocabulary.token_to_id(kind.start)
        self._ends = {vocabulary.token_to_id(marker) for marker in (kind.end, *kind.also_end)}
        self._may_open = kind.opens_late and not thinking

    def feed(self, ids: Sequence[int]) -> None:
        for token in ids:
            if token in self._ends:
                self._thinking = self._may_open = False
                self.over = True
            elif token == self._start:
                self._thinking = self._thinking or self._may_open
            elif self._thinking:
                self.count += 1


class Parser:
    """Lives as long as its choice. A batch is a stream that is fed once: there is no other way to parse."""

    def __init__(
        self,
        out: Emission,
        answer: Answer,
        calls: ToolOutput | None = None,
        reasoning: ReasoningParser | None = None,
        reasoning_tokens: ReasoningTokens | None = None,
    ) -> None:
        self._out = out
        self._answer = answer
        self._calls = calls
        self._reasoning = reasoning
        self._reasoning_tokens = reasoning_tokens
        self.run: Run | None = None  # what the text so far ends in the middle of

    def feed(self, text: str, token_ids: Sequence[int] = (), finished: bool = False) -> ParsedDelta:
        """What `text` adds. `finished` lets go of all that is held back; a last feed may be empty. The cost is that of `text`."""
        if token_ids:
            self.count(token_ids)
        run = self.run
        if run is not None and not finished and run.ends.search(text) is None:
            return run.delta(text, self._out.accounts)
        machine = self._answer if self._reasoning is None or self._reasoning.over else self._reasoning
        machine.feed(text, finished)
        self.run = machine.run
        return self._out.drain()

    def count(self, token_ids: Sequence[int]) -> None:
        """Tokens of texts that were fed without them, or of texts in the middle of a run."""
        if self._reasoning_tokens is not None and not self._reasoning_tokens.over:
            self._reasoning_tokens.feed(token_ids)

    @property
    def tool_call_ids(self) -> list[str]:
        """The ids of the calls begun so far. A parser that is to go on with this stream elsewhere is made with them."""
        return list(self._calls.ids) if self._calls is not None else []

    @property
    def reasoning_tokens(self) -> int | None:
        """None without a reasoning parser."""
        return None if self._reasoning_tokens is None else self._reasoning_tokens.count


def make_parser(
    reasoning: str | None,
    tool: str | None,
    *,
    tokenizer: Vocabulary,
    prompt_token_ids: Sequence[int],
    tools: Tools | None = None,
    tool_choice: str | Mapping[str, Any] | None = None,
    parallel_tool_calls: bool | None = True,
    include_reasoning: bool = True,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    history_tool_call_cnt: int = 0,
    enable_auto_tool_choice: bool = True,
    tool_call_ids: Sequence[str] = (),
    spans: bool = True,
) -> Parser:
    """A parser for one choice, by the names that its model is configured with.

    Raises:
        ValueError: an unknown name, or a tokenizer without the markers that the reasoning parser needs.
    """
    out = Emission(show_reasoning=include_reasoning, accounts=spans)
    answer: Answer = PlainAnswer(out)
    calls = None
    family = None if tool is None else find_tool_parser(tool)
    if family is not None and tools is not None and parses_tools(tools, tool_choice, enable_auto=enable_auto_tool_choice):
        new_id: NewId = partial(numbered, family.new_id, history_tool_call_cnt)
        calls = ToolOutput(out, new_id, pinned=tool_call_ids, limit=1 if parallel_tool_calls is False else None)
        answer = family(calls, tools)
    if reasoning is None:
        return Parser(out, answer, calls)
    kind = find_reasoning_parser(reasoning, tokenizer)
    enabled = kind.enabled(chat_template_kwargs)
    thinking = enabled and kind.opens(tokenizer, prompt_token_ids)
    tokens = ReasoningTokens(kind, tokenizer, thinking=thinking)
    return Parser(out, answer, calls, kind(out, answer, thinking=thinking) if enabled else None, tokens)


def numbered(new_id: NewId, history: int, name: str, index: int) -> str:
    return new_id(name, history + index)


def end_ids(reasoning: str, tokenizer: Vocabulary) -> list[int]:
    """The tokens after which the answer proper begins.

    Raises:
        ValueError: as `make_parser`.
    """
    found = tokenizer.token_to_id(find_reasoning_parser(reasoning, tokenizer).end)
    return [] if found is None else [found]


def reasoning_ended(
    reasoning: str | None, *, tokenizer: Vocabulary, prompt_token_ids: Sequence[int], chat_template_kwargs: Mapping[str, Any] | None = None
) -> bool | None:
    """The verdict on the prompt: whether the answer begins outside the reasoning. None without a reasoning parser.

    Raises:
        ValueError: as `make_parser`.
    """
    if reasoning is None:
        return None
    kind = find_reasoning_parser(reasoning, tokenizer)
    return not (kind.enabled(chat_template_kwargs) and kind.opens(tokenizer, prompt_token_ids))
