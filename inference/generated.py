"""The node's answers: what the engine puts out for one request, as `/inference/v1/generate` sends it, whole or chunk by chunk.

Tokens mode is the engine's output in JSON. Text and derender mode pass every choice through a `TextWriter` (see inference.derender),
which alone knows the tokenizer, stop strings and parsers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from msgspec import UNSET

from inference.errors import InternalError
from inference.logprobs import generate_logprobs, prompt_logprobs
from inference.model import ServedModel
from inference.protocol.engine import ChoiceOutput, EngineOutput, EngineRequest
from inference.protocol.generate import (
    GenerateChoice,
    GenerateChunk,
    GenerateChunkChoice,
    GenerateLogprobs,
    GenerateRequest,
    GenerateResponse,
    PromptTokensDetails,
    Usage,
)

WEIGHTS = "default"


@dataclass
class Made:
    """What one choice has so far."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[GenerateLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class GenerateAnswer:
    """Feeds on the engine's outputs; builds chunks as they come, and the whole answer at the end."""

    def __init__(self, request: GenerateRequest, work: EngineRequest, model: ServedModel, request_id: str) -> None:
        self.request = request
        self.model = model
        self.request_id = request_id
        self.created = int(time.time())
        self.wants_ids = request.return_token_ids is True
        self.prompt_tokens = len(request.token_ids)
        self.choices = [Made() for _ in range(work.sampling.n)]
        self.prompt_logprobs = None
        self.cached_tokens = 0
        self.begun = False
        options = request.stream_options
        self.usage_asked = options is not None and options.include_usage is True
        self.continuous = self.usage_asked and options is not None and options.continuous_usage_stats is True

    def feed(self, output: EngineOutput) -> list[GenerateChunk]:
        """The chunks for one output, one choice each; an output without news has none.

        Raises:
            InternalError: the engine failed this request.
        """
        if output.error is not None or any(choice.finish_reason == "error" for choice in output.choices):
            raise InternalError()
        if output.prompt_rows is not None:
            self.prompt_logprobs = prompt_logprobs(output.prompt_rows)
        self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        return [self.chunk(news) for news in output.choices if news.token_ids or news.finish_reason is not None]

    def chunk(self, news: ChoiceOutput) -> GenerateChunk:
        made = self.choices[news.index]
        logprobs = None if news.rows is None else generate_logprobs(news.token_ids, news.rows)
        made.token_ids += news.token_ids
        if logprobs is not None:
            made.logprobs.append(logprobs)
        made.finish_reason, made.stop_reason = news.finish_reason, news.stop_reason
        choice = GenerateChunkChoice(
            index=news.index, token_ids=news.token_ids, logprobs=logprobs, finish_reason=news.finish_reason, stop_reason=news.stop_reason,
            weight_versions=None if news.finish_reason is None else weight_versions(made))
        chunk = GenerateChunk(request_id=self.request_id, choices=[choice], usage=self.usage(made) if self.continuous else None)
        if self.wants_ids and not self.begun:
            chunk.prompt_token_ids = self.request.token_ids
        self.begun = True
        return chunk

    def finish(self) -> list[GenerateChunk]:
        """The usage chunk, where it was asked for: totals over all choices, without nulls."""
        if not self.usage_asked:
            return []
        usage = self.usage(*self.choices)
        usage.prompt_tokens_details, usage.completion_tokens_details = self.cache_details(UNSET), UNSET
        return [GenerateChunk(request_id=self.request_id, choices=[], usage=usage)]

    def whole(self) -> GenerateResponse:
        return GenerateResponse(
            request_id=self.request_id, model=self.model.name, created=self.created, usage=self.usage(*self.choices),
            prompt_logprobs=self.prompt_logprobs, prompt_token_ids=self.request.token_ids if self.wants_ids else None,
            choices=[whole_choice(index, made) for index, made in enumerate(self.choices)])

    def usage(self, *choices: Made) -> Usage:
        completion = sum(len(made.token_ids) for made in choices)
        return Usage(prompt_tokens=self.prompt_tokens, completion_tokens=completion, total_tokens=self.prompt_tokens + completion,
                     prompt_tokens_details=self.cache_details(None))

    def cache_details(self, without):  # type: ignore[no-untyped-def]
        return PromptTokensDetails(cached_tokens=self.cached_tokens) if self.cached_tokens else without


def whole_choice(index: int, made: Made) -> GenerateChoice:
    logprobs = GenerateLogprobs(content=[entry for part in made.logprobs for entry in part.content or ()]) if made.logprobs else None
    return GenerateChoice(
        index=index, token_ids=made.token_ids, finish_reason="stop" if made.finish_reason is None else made.finish_reason,
        stop_reason=made.stop_reason, weight_versions=weight_versions(made), logprobs=logprobs)


def weight_versions(made: Made) -> list[dict[str, str | int]]:
    """Which weights made which tokens, as [start, end) of the output. These never change while the node runs."""
    return [{"version": WEIGHTS, "start": 0, "end": len(made.token_ids)}]
