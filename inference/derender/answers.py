"""Coupled answers: a node's token chunks go in, the endpoint's own chunks come out, or in the end the whole answer. One code path for both.

    start() -> chunks before any token      feed(prompt, chunk) -> chunks      finish() -> the usage chunk      whole() -> the answer

A request that does not stream gets no chunks, only `whole()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from inference.derender.choice import Choice, Ending
from inference.errors import InternalError, SchemaError
from inference.logprobs import PromptLogprobs, entries_of, named_prompt_logprobs
from inference.model import ServedModel
from inference.protocol.generate import (
    GenerateChunk,
    GenerateChunkChoice,
    GenerateResponse,
    PromptTokensDetails,
    TokenLogprobs,
    Usage,
)
from inference.protocol.openai import OpenAIRequest
from inference.rendered import Rendered
from inference.resolve import Effective
from inference.values import stop_list

FINGERPRINT = "tokenry-1"  # the same on every process of a version: clients compare it to notice a change of back end


@dataclass
class Prompt:
    """One prompt of a request with its choices, as far as they have come."""

    rendered: Rendered
    counters: list[Choice]
    logprobs: PromptLogprobs | None = None
    cached_tokens: int = 0  # of the prompt's, those that the node found in its prefix cache

    @property
    def finished(self) -> bool:
        return all(choice.finish_reason is not None for choice in self.counters)


class Answer(ABC):
    """Chat and completions differ in the shapes; what is counted, ended and dropped is the same."""

    def __init__(
        self,
        request: OpenAIRequest,
        effective: Effective,
        model: ServedModel,
        rendered: Sequence[Rendered],
        *,
        request_id: str,
        created: int,
    ) -> None:
        self.id = request_id
        self.created = created
        self.model = model.answering_to(request.model)
        self.streaming = request.stream is True
        self.n: int = effective.values.get("n", 1)
        self.return_ids: bool = effective["return_token_ids"]
        self.include_usage: bool = self.streaming and effective["stream_options.include_usage"]
        options = request.stream_options
        self.continuous = self.include_usage and options is not None and options.continuous_usage_stats is True
        self.tokenizer = model.tokenizer
        self.running = self.n * len(rendered)
        self.prompts: list[Prompt] = []

    @abstractmethod
    def start(self) -> list[Any]:
        """What a stream begins with, before any token."""

    def feed(self, prompt: int, chunk: GenerateChunk) -> list[Any]:
        """The chunks that a node's chunk of the `prompt`-th prompt makes.

        Raises:
            InternalError: the engine failed the request.
        """
        self.prompts[prompt].cached_tokens = max(self.prompts[prompt].cached_tokens, cached_tokens(chunk.usage))
        logprobs = chunk.prompt_logprobs
        if logprobs is not UNSET and logprobs is not None:
            self._take_prompt_logprobs(self.prompts[prompt], logprobs)
        made = [self._take(prompt, part) for part in chunk.choices]
        return [each for each in made if each is not None]

    def finished(self, prompt: int) -> bool:
        """Whether every choice of the prompt has ended, by a stop string too: the node may then be told to stop."""
        return self.prompts[prompt].finished

    def finish(self) -> list[Any]:
        """The usage chunk, where it is asked for."""
        return [self._usage_chunk()] if self.include_usage else []

    @abstractmethod
    def whole(self) -> Any:
        """The answer in one piece; for a request that does not stream."""

    @property
    def usage(self) -> Usage:
        """Tokens delivered so far, over all prompts and choices."""
        completion = sum(choice.count for prompt in self.prompts for choice in prompt.counters)
        usage = self._usage(sum(len(prompt.rendered.token_ids) for prompt in self.prompts), completion)
        if self.cached_tokens:
            usage.prompt_tokens_details = PromptTokensDetails(cached_tokens=self.cached_tokens)
        return usage

    @property
    def cached_tokens(self) -> int:
        """Of all prompts' tokens, those found in a prefix cache; known when a node has ended."""
        return sum(prompt.cached_tokens for prompt in self.prompts)

    def _take(self, prompt: int, part: GenerateChunkChoice) -> Any:
        """One choice's news. What still comes after a choice has ended is neither shown nor counted."""
        if part.finish_reason == "error" or not 0 <= part.index < self.n:
            raise InternalError()
        counter = self.prompts[prompt].counters[part.index]
        if counter.finish_reason is not None:
            return None
        made = self._news(prompt, part)
        if counter.finish_reason is not None:
            self.running -= 1
        if made is not None and self.running == 0 and not self.include_usage:
            made.system_fingerprint = FINGERPRINT
        return made

    def _take_prompt_logprobs(self, prompt: Prompt, logprobs: PromptLogprobs) -> None:
        prompt.logprobs = named_prompt_logprobs(logprobs, prompt.rendered.token_ids, self.tokenizer)

    @abstractmethod
    def _news(self, prompt: int, part: GenerateChunkChoice) -> Any:
        """The chunk for one choice's news, or None if there is nothing to show."""

    @abstractmethod
    def _usage_chunk(self) -> Any: ...

    def _entries(self, part: GenerateChunkChoice, wanted: bool) -> list[TokenLogprobs] | None:
        """A node's logprobs that are none are the node's fault, not the tenant's."""
        try:
            return entries_of(part.logprobs, "logprobs") if wanted else None
        except SchemaError as exc:
            raise InternalError("The node's logprobs cannot be read.") from exc

    def _stream_usage(self) -> Usage:
        """In a stream, details are left out where a whole answer has null."""
        usage = self.usage
        if usage.prompt_tokens_details is None:
            usage.prompt_tokens_details = UNSET
        if usage.completion_tokens_details is None:
            usage.completion_tokens_details = UNSET
        return usage

    @staticmethod
    def _usage(prompt: int, completion: int) -> Usage:
        return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def ending(request: OpenAIRequest, effective: Effective, model: ServedModel) -> Ending:
    return Ending(
        stops=stop_list(effective["stop"]),
        eos_ids=frozenset() if request.ignore_eos else frozenset(model.eos_token_ids),
        stop_ids=frozenset() if request.stop_token_ids is None else frozenset(request.stop_token_ids),
        include=effective["include_stop_str_in_output"],
        min_tokens=0 if request.min_tokens is None else request.min_tokens,
    )


def cached_tokens(usage: Usage | None) -> int:
    """What a node says of its prefix cache; not every node says it."""
    details = None if usage is None else usage.prompt_tokens_details
    return 0 if details is None or details is UNSET or details.cached_tokens is None else details.cached_tokens


def as_chunks(response: GenerateResponse) -> list[GenerateChunk]:
    """A whole generate answer as the chunks that it might have come in; some nodes give prompt_logprobs only in a whole one."""
    shared = UNSET if response.prompt_logprobs is None else response.prompt_logprobs
    parts = [
        GenerateChunkChoice(
            index=choice.index,
            token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
        )
        for choice in response.choices
    ]
    return [GenerateChunk(request_id=response.request_id, choices=parts, prompt_logprobs=shared, usage=response.usage)]
