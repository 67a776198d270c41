"""The coupled chat answer, streamed or whole. Which keys appear where follows vLLM's streams: what is unset is left out."""

from __future__ import annotations

from msgspec import UNSET

from inference.derender.answers import FINGERPRINT, Answer, Prompt, ending
from inference.derender.chat_choice import ChatChoice, ChatNews, whole_logprobs, whole_offsets
from inference.derender.choice import skips_specials
from inference.logprobs import TokenNamer
from inference.model import ServedModel
from inference.parsers import ParsedDelta
from inference.parsing import parse_context
from inference.protocol import chat
from inference.protocol.chat import (
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionRequest,
    ChatDelta,
    SparseFunctionCall,
    SparseToolCallDelta,
    ToolCallDelta,
)
from inference.protocol.generate import CompletionTokensDetails, GenerateChunkChoice, Usage
from inference.rendered import Rendered
from inference.resolve import Effective


class ChatAnswer(Answer):
    def __init__(
        self,
        request: ChatCompletionRequest,
        effective: Effective,
        model: ServedModel,
        rendered: Rendered,
        *,
        request_id: str,
        created: int,
    ) -> None:
        super().__init__(request, effective, model, [rendered], request_id=request_id, created=created)
        self.rendered = rendered
        self.wants_logprobs = request.logprobs is True or request.logprob_token_ids is not None
        self.returns_text = request.return_prompt_text is True
        self.returns_offsets = request.return_output_offsets is True
        self.choices = [self._choice(request, effective, model) for _ in range(self.n)]
        self.prompts = [Prompt(rendered, [choice.choice for choice in self.choices])]
        self.news: list[list[ChatNews]] = [[] for _ in self.choices]

    def _choice(self, request: ChatCompletionRequest, effective: Effective, model: ServedModel) -> ChatChoice:
        as_ids, keep = effective["return_tokens_as_token_ids"], kept_candidates(request, effective)
        return ChatChoice(
            parse_context(request, effective),
            model,
            self.rendered.token_ids,
            TokenNamer(model.tokenizer, as_ids=as_ids, keep=keep, coupled=True),
            skip_special_tokens=skips_specials(self.rendered.generate.sampling_params),
            ending=ending(request, effective, model),
            offsets=self.returns_offsets,
        )

    @property
    def usage(self) -> Usage:
        usage = super().usage
        thought = [choice.parser.reasoning_tokens for choice in self.choices if choice.parser is not None]
        counts = [count for count in thought if count is not None]
        if counts:
            usage.completion_tokens_details = CompletionTokensDetails(reasoning_tokens=sum(counts))
        return usage

    def start(self) -> list[ChatChunk]:
        """A role chunk per choice, then what is echoed."""
        if not self.streaming:
            return []
        roles = [self._first_chunk(index, ChatDelta(role="assistant", content="")) for index in range(self.n)]
        if roles:
            roles[0].prompt_token_ids = self.rendered.token_ids if self.return_ids else None
            roles[0].prompt_text = self.rendered.prompt_text if self.returns_text else None
            roles[0].prefix_match = self.rendered.generate.prefix_match
            roles[0].prefix_first_difference = self.rendered.generate.prefix_first_difference
        echo = self.rendered.echo_text
        echoes = [] if echo is None else [self._first_chunk(index, ChatDelta(content=echo)) for index in range(self.n)]
        return roles + echoes

    def whole(self) -> ChatCompletion:
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[self._whole_choice(index) for index in range(self.n)],
            system_fingerprint=FINGERPRINT,
            usage=self.usage,
            prompt_logprobs=self.prompts[0].logprobs,
            prompt_token_ids=self.rendered.token_ids if self.return_ids else None,
            prompt_text=self.rendered.prompt_text if self.returns_text else None,
            prefix_match=self.rendered.generate.prefix_match,
            prefix_first_difference=self.rendered.generate.prefix_first_difference,
        )

    def _news(self, prompt: int, part: GenerateChunkChoice) -> ChatChunk | None:
        ids = [] if part.token_ids is None else part.token_ids
        entries = self._entries(part, self.wants_logprobs)
        news = self.choices[part.index].feed(ids, entries, part.finish_reason, part.stop_reason)
        if self.streaming:
            return self._shown(part.index, news)
        self.news[part.index].append(news)
        return None

    def _shown(self, index: int, news: ChatNews) -> ChatChunk | None:
        """Nothing for news that show nothing: text held back, markup that a parser took."""
        ids = news.token_ids if self.return_ids else None
        if news.silent and news.finish_reason is None and news.logprobs is None and not ids and not news.offsets:
            return None
        choice = ChatChunkChoice(
            index=index, delta=delta_of(news.parsed), logprobs=news.logprobs, finish_reason=news.finish_reason, token_ids=ids
        )
        if news.finish_reason is not None:
            choice.stop_reason = news.stop_reason
        if self.returns_offsets:
            choice.output_offsets = news.offsets
        chunk = ChatChunk(id=self.id, created=self.created, model=self.model, choices=[choice])
        if self.continuous:
            chunk.usage = self._running_usage(self.choices[index].choice.count)
        return chunk

    def _first_chunk(self, index: int, delta: ChatDelta) -> ChatChunk:
        chunk = ChatChunk(
            id=self.id, created=self.created, model=self.model, choices=[ChatChunkChoice(index=index, delta=delta)],
            prompt_token_ids=None, prompt_text=None,
        )
        if self.continuous:
            chunk.usage = self._running_usage(0)
        return chunk

    def _usage_chunk(self) -> ChatChunk:
        return ChatChunk(
            id=self.id, created=self.created, model=self.model, choices=[], usage=self._stream_usage(), system_fingerprint=FINGERPRINT
        )

    def _running_usage(self, completion: int) -> Usage:
        usage = self._usage(len(self.rendered.token_ids), completion)
        usage.prompt_tokens_details = UNSET
        return usage

    def _whole_choice(self, index: int) -> chat.ChatChoice:
        news = self.news[index]
        last = news[-1] if news else None
        message = self.choices[index].message(news)
        if self.rendered.echo_text is not None:
            message.content = self.rendered.echo_text + ("" if message.content is None else message.content)
        return chat.ChatChoice(
            index=index,
            message=message,
            logprobs=whole_logprobs(news),
            finish_reason=None if last is None else last.finish_reason,
            stop_reason=None if last is None else last.stop_reason,
            token_ids=self._shown_ids(index) if self.return_ids else None,
            output_offsets=whole_offsets(news) if self.returns_offsets else UNSET,
        )

    def _shown_ids(self, index: int) -> list[int] | None:
        if self.choices[index].hidden:
            return None
        return [i for news in self.news[index] if news.token_ids is not None for i in news.token_ids]


def delta_of(parsed: ParsedDelta) -> ChatDelta:
    """Only what is set; a stream without a parser always sets the content."""
    delta = ChatDelta()
    if parsed.content is not None:
        delta.content = parsed.content
    if parsed.reasoning is not None:
        delta.reasoning = parsed.reasoning
    if parsed.tool_calls:
        delta.tool_calls = [sparse(call) for call in parsed.tool_calls]
    return delta


def sparse(call: ToolCallDelta) -> SparseToolCallDelta:
    function = SparseFunctionCall(name=call.function.name, arguments=call.function.arguments)
    return SparseToolCallDelta(index=call.index, id=call.id, type=call.type, function=function)


def kept_candidates(request: ChatCompletionRequest, effective: Effective) -> int | None:
    """None for all: -1, or when the request says itself which (pipeline.md 8.5)."""
    count: int = effective.values.get("top_logprobs", 0)
    return None if count == -1 or request.logprob_token_ids is not None else count
