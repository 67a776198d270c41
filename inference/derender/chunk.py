"""`/derender`, one call per streamed chunk. Nothing is kept here between calls: what the next one needs goes back in `stream_state`.

Without a parser the state is a window of a few pieces. A parser keeps more than fits into JSON, so each call makes a new one and replays
every earlier chunk, with its original boundaries.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import UNSET, UnsetType, structs

from inference.derender.bounds import check_chunk, check_history, check_length, check_state, checked_entries
from inference.derender.chat_choice import ChatChoice
from inference.derender.completion_answer import kept_candidates
from inference.derender.whole import answer_id, chat_namer, shown_ending, skips, usage, wants_offsets
from inference.detokenize import Detokenizer
from inference.errors import BadRequest
from inference.logprobs import TokenNamer
from inference.model import ServedModel
from inference.parsers import ParsedDelta
from inference.parsing import required_context
from inference.protocol.chat import (
    ChatChunk,
    ChatChunkChoice,
    ChatCompletionRequest,
    ChatDelta,
    ChatLogprobs,
    FunctionCall,
    ToolCallDelta,
)
from inference.protocol.completions import CompletionChunk, CompletionChunkChoice, CompletionRequest
from inference.protocol.derender import (
    DerenderChatStreamRequest,
    DerenderCompletionStreamRequest,
    DerenderedChatChunk,
    DerenderedCompletionChunk,
    StreamState,
)
from inference.protocol.generate import GenerateChunk, GenerateChunkChoice, ParseContext, Usage
from inference.resolve import Effective


def derender_chat_chunk(request: DerenderChatStreamRequest, model: ServedModel, effective: Effective) -> DerenderedChatChunk:
    """`effective` is what applies to `chat_request`, or to a request that sets nothing.

    Raises:
        ApiError: the body or its state is out of bounds or cannot be derendered; `param` names the place.
    """
    name = model.answering_to(request.model)
    chunk, state = request.generate_chunk, carried_state(request.stream_state)
    check_chunk(chunk)
    check_length("prompt_token_ids", request.prompt_token_ids, model, "prompt_token_ids")
    context = parser_context(request.chat_request, request.prompt_token_ids, model, effective)
    prompt = prompt_ids(request.prompt_token_ids, chunk.prompt_token_ids)
    shown = []
    for part in chunk.choices:
        stream = ChatStream(context, request.chat_request, model, effective, prompt, state)
        shown.append(stream.feed(part))
        state = stream.state()
    return DerenderedChatChunk(chunk=chat_chunk(chunk, shown, name, int(time.time()), request.prompt_tokens), stream_state=state)


def parser_context(
    original: ChatCompletionRequest | None, prompt_token_ids: Sequence[int] | None, model: ServedModel, effective: Effective
) -> ParseContext:
    """Raises BadRequest: a parser is configured, and what it must know is missing."""
    context = required_context(original, effective, model)
    if model.has_parser and prompt_token_ids is None:
        raise BadRequest("prompt_token_ids is required: the prompt says whether the answer begins with reasoning.", "prompt_token_ids")
    return context


MAX_SINGLES = 1024  # that wait to be recorded


class ChatStream:
    """One choice of a streamed chat, from where its state left it. Its state is written when it is asked for, not with every chunk."""

    def __init__(
        self,
        context: ParseContext,
        original: ChatCompletionRequest | None,
        model: ServedModel,
        effective: Effective,
        prompt: Sequence[int] | None,
        state: StreamState,
    ) -> None:
        self.model = model
        self.carried = state
        self.fed = False  # with any ids
        self.prompt_length = 0 if prompt is None else len(prompt)
        self.returns_ids: bool = effective["return_token_ids"]
        self.returns_offsets = wants_offsets(original)
        check_history(self.prompt_length, len(state.output_token_ids), 0, model)
        self.choice = ChatChoice(
            context,
            model,
            prompt,
            chat_namer(original, model, effective),
            skip_special_tokens=skips(model, effective),
            ending=shown_ending(original, model, effective),
            tool_call_ids=state.last_tool_call_ids,
            offsets=self.returns_offsets,
        )
        self.shows_ids = self.returns_ids and not self.choice.hidden
        if self.choice.offsets is not None and self.choice.parser is None:
            written = 0 if state.output_offset is UNSET else state.output_offset
            self.choice.offsets.resume(written, state.logprob_context_token_ids)
        replay(self.choice, state)
        self.singles: list[int] = []  # taken one by one, and not recorded yet
        self.room = 0  # for so many of them; none before the first chunk, which says more

    def feed(self, part: GenerateChunkChoice) -> ChatChunkChoice:
        """The chunk's choice. One that is refused has moved nothing."""
        ids = part.token_ids
        bare = part.finish_reason is None and part.stop_reason is None and part.logprobs is None
        if bare and ids is not None and len(ids) == 1 and len(self.singles) < self.room:
            self.singles.append(ids[0])
            delta = self.single(ids[0])
            return ChatChunkChoice(index=part.index, delta=delta, stop_reason=None, token_ids=ids if self.shows_ids else None)
        self.settle()
        return self.take(part, [] if ids is None else ids)

    def single(self, token_id: int) -> ChatDelta:
        """What a token adds of which nothing else is to be told: nearly every chunk of a stream. In the middle of a part the parser need
        not look at it; what parser and namer count, `settle` makes up for."""
        text, parser = self.choice.detokenizer.feed_one(token_id), self.choice.parser
        if parser is None:
            return ChatDelta(role=None, content=text if text else None, reasoning=None)
        run = parser.run
        if run is None or run.ends.search(text) is not None:
            return full_delta(parser.feed(text), None)
        if run.call is None or not text:
            content = text if text and run.part == "content" else None
            return ChatDelta(role=None, content=content, reasoning=text if text and content is None else None)
        call = ToolCallDelta(index=run.call, function=FunctionCall(arguments=text))
        return ChatDelta(role=None, content=None, reasoning=None, tool_calls=[call])

    def take(self, part: GenerateChunkChoice, ids: list[int]) -> ChatChunkChoice:
        state, choice = self.carried, self.choice
        check_history(self.prompt_length, len(state.output_token_ids), len(ids), self.model)
        entries = checked_entries(part.logprobs, self.model, "body.generate_chunk.choices.0.logprobs")
        news = choice.feed(ids, entries, part.finish_reason, part.stop_reason)
        role = None if state.role_sent else "assistant"
        state.role_sent = True
        self.record(ids, [len(ids)] if ids else [])
        unnamed = part.logprobs is not None and entries is None and not choice.hidden
        return ChatChunkChoice(
            index=part.index,
            delta=full_delta(news.parsed, role),
            logprobs=ChatLogprobs() if unnamed else news.logprobs,
            finish_reason=news.finish_reason,
            stop_reason=news.stop_reason,
            token_ids=news.token_ids if self.returns_ids else None,
            output_offsets=news.offsets if self.returns_offsets else UNSET,
        )

    @property
    def ids_left(self) -> int:
        """Until the bound of `check_history`."""
        return self.model.max_model_len - self.prompt_length - len(self.carried.output_token_ids)

    def settle(self) -> None:
        """Record what was taken one by one."""
        if self.singles:
            self.choice.namer.pass_by(self.singles)
            if self.choice.parser is not None:
                self.choice.parser.count(self.singles)
            self.record(self.singles, [1] * len(self.singles))
            self.singles = []

    def record(self, ids: list[int], lengths: list[int]) -> None:
        """For a parser, which is made again from its ids; a plain choice has its window. The lists grow in place: they can be long."""
        self.fed = self.fed or bool(ids)
        if self.choice.parser is not None:
            self.carried.output_token_ids += ids
            self.carried.output_chunk_lens += lengths
        self.room = 0 if self.returns_offsets else min(MAX_SINGLES, self.ids_left)

    def state(self) -> StreamState:
        """What a call elsewhere needs to go on: a plain choice's window, or what its parser was fed and the calls that it has named."""
        state, choice = self.carried, self.choice
        self.settle()
        if not state.role_sent:
            return state
        state.logprob_context_token_ids = [*choice.namer.context]
        if choice.parser is None:
            choice.detokenizer.save(state, fed=self.fed)
            state.output_offset = UNSET if choice.offsets is None else choice.offsets.written.begun
        else:
            state.tools_streamed = state.tools_streamed or choice.called
            state.last_tool_call_ids = choice.parser.tool_call_ids
        return state


def full_delta(parsed: ParsedDelta, role: str | None) -> ChatDelta:
    """Unlike a coupled stream's, with every key; only `tool_calls` is left out where there are none."""
    content = parsed.content if parsed.content else None
    return ChatDelta(role=role, content=content, reasoning=parsed.reasoning, tool_calls=parsed.tool_calls if parsed.tool_calls else UNSET)


def chat_chunk(chunk: GenerateChunk, shown: list[ChatChunkChoice], name: str, created: int, prompt_tokens: int | None) -> ChatChunk:
    return ChatChunk(
        id=answer_id(None) if chunk.request_id is None else chunk.request_id,
        created=created,
        model=name,
        choices=shown,
        usage=None if chunk.usage is None else chunk_usage(chunk.usage, prompt_tokens),
        system_fingerprint=None,
        prompt_token_ids=None,
        prompt_text=None,
        metrics=None if chunk.metrics is UNSET else chunk.metrics,
    )


def replay(choice: ChatChoice, state: StreamState) -> None:
    """Bring a new choice to where it stood after the last call."""
    if choice.parser is not None:
        start = 0
        for length in state.output_chunk_lens:
            choice.feed(state.output_token_ids[start : start + length], None, None, None)
            start += length
    elif state.prev_tokens:
        choice.detokenizer.restore(state)
    choice.namer.context = [*state.logprob_context_token_ids]


def derender_completion_chunk(
    request: DerenderCompletionStreamRequest, model: ServedModel, effective: Effective
) -> DerenderedCompletionChunk:
    """As for chats, with text instead of a delta; no parser runs.

    Raises:
        ApiError: the body or its state is out of bounds or cannot be derendered; `param` names the place.
    """
    name = model.answering_to(request.model)
    chunk, state = request.generate_chunk, carried_state(request.stream_state)
    check_chunk(chunk)
    check_length("prompt_token_ids", request.prompt_token_ids, model, "prompt_token_ids")
    prompt = prompt_ids(request.prompt_token_ids, chunk.prompt_token_ids)
    shown = [text_part(part, request.completion_request, state, model, effective, prompt) for part in chunk.choices]
    return DerenderedCompletionChunk(chunk=text_chunk(chunk, shown, name, int(time.time()), request.prompt_tokens), stream_state=state)


def text_chunk(
    chunk: GenerateChunk, shown: list[CompletionChunkChoice], name: str, created: int, prompt_tokens: int | None
) -> CompletionChunk:
    return CompletionChunk(
        id=answer_id(chunk.request_id),
        created=created,
        model=name,
        choices=shown,
        usage=None if chunk.usage is None else chunk_usage(chunk.usage, prompt_tokens),
        system_fingerprint=None,
        metrics=None if chunk.metrics is UNSET else chunk.metrics,
    )


def text_part(
    part: GenerateChunkChoice,
    original: CompletionRequest | None,
    state: StreamState,
    model: ServedModel,
    effective: Effective,
    prompt: Sequence[int] | None,
) -> CompletionChunkChoice:
    """The chunk's choice; `state` moves on. The offset goes on in token strings where there are any, else in the text."""
    ids = [] if part.token_ids is None else part.token_ids
    entries = checked_entries(part.logprobs, model, "body.generate_chunk.choices.0.logprobs")
    detokenizer = Detokenizer(model.tokenizer, skip_special_tokens=effective["skip_special_tokens"])
    if state.prev_tokens:
        detokenizer.restore(state)
    else:
        detokenizer.seed(prompt)
    text = detokenizer.feed(ids)
    namer = text_namer(original, state, model, effective)
    logprobs = None if entries is None else namer.completion(entries)
    namer.pass_by(ids)
    detokenizer.save(state, fed=bool(ids))
    state.logprob_context_token_ids = namer.context
    state.logprob_text_offset = namer.text_offset if entries is not None else state.logprob_text_offset + len(text)
    return CompletionChunkChoice(
        index=part.index,
        text=text,
        logprobs=logprobs,
        finish_reason=part.finish_reason,
        stop_reason=part.stop_reason,
        token_ids=ids if effective["return_token_ids"] else None,
    )


def text_namer(original: CompletionRequest | None, state: StreamState, model: ServedModel, effective: Effective) -> TokenNamer:
    keep = None if original is None else kept_candidates(original)
    namer = TokenNamer(model.tokenizer, as_ids=effective["return_tokens_as_token_ids"], keep=keep)
    namer.context, namer.text_offset = [*state.logprob_context_token_ids], state.logprob_text_offset
    return namer


def carried_state(state: StreamState | None) -> StreamState:
    """A state of our own to write to, its growing lists too.

    Raises:
        SchemaError: it contradicts itself.
    """
    if state is None:
        return StreamState()
    check_state(state)
    return structs.replace(state, output_token_ids=[*state.output_token_ids], output_chunk_lens=[*state.output_chunk_lens])


def prompt_ids(own: list[int] | None, from_chunk: list[int] | UnsetType | None) -> list[int] | None:
    """The caller's, else what the node sent along with the first chunk."""
    if own is not None:
        return own
    return None if from_chunk is UNSET else from_chunk


def chunk_usage(of_node: Usage, prompt_tokens: int | None) -> Usage:
    """The caller knows the prompt better than a node that got it in ids."""
    completion = 0 if of_node.completion_tokens is None else of_node.completion_tokens
    return usage(of_node.prompt_tokens if prompt_tokens is None else prompt_tokens, completion)
