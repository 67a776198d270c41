"""Answers of `/inference/v1/generate`, whole or chunk by chunk: from an engine (`feed`, at a node) or a node (`relay`, at the platform).

Tokens mode is the engine's output in JSON. Where text matters (modes text and derender, stop strings) every choice's news pass through a
`TextWriter`, which alone knows the tokenizer and the parsers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from msgspec import UNSET

from inference.derender import TextWriter, cached_tokens
from inference.errors import InternalError
from inference.intervals import Intervals
from inference.logprobs import PromptLogprobs, generate_logprobs, named_prompt_logprobs, prompt_logprobs
from inference.model import ServedModel
from inference.protocol.engine import ChoiceOutput, EngineOutput
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

WEIGHTS = "default"  # the name of the weights that made the tokens; these never change while a node runs


@dataclass
class Made:
    """What one choice has so far."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[GenerateLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class GenerateAnswer:
    """One request's answer. `n` choices; `writer` None in tokens mode without stop strings."""

    def __init__(self, request: GenerateRequest, model: ServedModel, request_id: str, *, n: int, writer: TextWriter | None) -> None:
        self.request = request
        self.model = model
        self.request_id = request_id
        self.writer = writer
        self.mode = "tokens" if request.output_mode is None else request.output_mode
        self.created = int(time.time())
        self.returns_ids = request.return_token_ids is True
        self.choices = [Made() for _ in range(n)]
        self.prompt_logprobs: PromptLogprobs | None = None
        self.cached_tokens = 0
        self.begun = False
        interval = request.sampling_params.stream_interval
        self.intervals = None if interval is None or interval == 1 or request.stream is not True else Intervals(interval)
        options = request.stream_options
        self.include_usage = options is not None and options.include_usage is True
        self.continuous = self.include_usage and options is not None and options.continuous_usage_stats is True

    @property
    def finished(self) -> bool:
        """Every choice has ended, by a stop string too: what runs may be told to stop."""
        return all(made.finish_reason is not None for made in self.choices)

    def feed(self, output: EngineOutput) -> list[GenerateChunk]:
        """The chunks for an engine's output, one choice each; an output without news has none.

        Raises:
            InternalError: the engine failed this request.
        """
        if output.error is not None:
            raise InternalError()
        if output.prompt_rows is not None:
            self.take_prompt_logprobs(prompt_logprobs(output.prompt_rows))
        self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        return self.chunks([part_of(news) for news in output.choices])

    def relay(self, chunk: GenerateChunk) -> list[GenerateChunk]:
        """The chunks for a node's tokens-mode chunk.

        Raises:
            InternalError: the engine behind the node failed this request.
        """
        self.cached_tokens = max(self.cached_tokens, cached_tokens(chunk.usage))
        if chunk.prompt_logprobs is not UNSET:
            self.take_prompt_logprobs(chunk.prompt_logprobs)
        for part in chunk.choices:
            if part.stop_reason in self.model.eos_token_ids and self.request.sampling_params.ignore_eos is not True:
                part.stop_reason = None  # to a node without a tokenizer EOS is one of the stop tokens
        return self.chunks(chunk.choices)

    def take_prompt_logprobs(self, logprobs: PromptLogprobs | None) -> None:
        """With the tokens' texts, where this server knows them."""
        if logprobs is not None and self.model.loaded_tokenizer is not None:
            logprobs = named_prompt_logprobs(logprobs, self.request.token_ids, self.model.tokenizer)
        self.prompt_logprobs = logprobs

    def chunks(self, parts: list[GenerateChunkChoice]) -> list[GenerateChunk]:
        if self.intervals is not None:
            parts = [part for each in parts if (part := self.intervals.gather(each)) is not None]
        made = [self.chunk(part) for part in parts]
        return [chunk for chunk in made if chunk is not None]

    def chunk(self, part: GenerateChunkChoice) -> GenerateChunk | None:
        if part.finish_reason == "error" or not 0 <= part.index < len(self.choices):
            raise InternalError()
        made = self.choices[part.index]
        if made.finish_reason is not None:
            return None
        shown = part if self.writer is None else self.writer.feed(part)
        if shown is None:
            return None
        record(made, shown)
        if shown.finish_reason is None and not shown.token_ids and not shown.text:
            return None
        shown.weight_versions = None if shown.finish_reason is None else weight_versions(made)
        if self.writer is not None:
            self.writer.conceal(shown)
        chunk = GenerateChunk(
            request_id=self.request_id, output_mode=self.mode, choices=[shown], usage=self.usage([made]) if self.continuous else None
        )
        if not self.begun:
            chunk.render_fingerprint = self.request.render_fingerprint
            chunk.prompt_token_ids = self.request.token_ids if self.returns_ids else UNSET
        self.begun = True
        return chunk

    def finish(self) -> list[GenerateChunk]:
        """The usage chunk, where it was asked for: totals over all choices, without nulls."""
        if not self.include_usage:
            return []
        usage = self.usage(self.choices)
        usage.prompt_tokens_details, usage.completion_tokens_details = self.cache_details() or UNSET, UNSET
        return [GenerateChunk(request_id=self.request_id, output_mode=self.mode, choices=[], usage=usage)]

    def whole(self) -> GenerateResponse:
        return GenerateResponse(
            request_id=self.request_id,
            model=self.model.name,
            created=self.created,
            usage=self.usage(self.choices),
            prompt_logprobs=self.prompt_logprobs,
            prompt_token_ids=self.request.token_ids if self.returns_ids else None,
            output_mode=self.mode,
            choices=[self.whole_choice(index, made) for index, made in enumerate(self.choices)],
            render_fingerprint=self.request.render_fingerprint,
        )

    def whole_choice(self, index: int, made: Made) -> GenerateChoice:
        logprobs = GenerateLogprobs(content=[entry for part in made.logprobs for entry in part.content or ()]) if made.logprobs else None
        choice = GenerateChoice(
            index=index,
            token_ids=made.token_ids,
            finish_reason="stop" if made.finish_reason is None else made.finish_reason,
            stop_reason=made.stop_reason,
            weight_versions=weight_versions(made),
            logprobs=logprobs,
        )
        return choice if self.writer is None else self.writer.dress_whole(choice)

    @property
    def completion_tokens(self) -> int:
        """Generated so far, over all choices."""
        return sum(len(made.token_ids) for made in self.choices)

    def usage(self, choices: list[Made]) -> Usage:
        prompt, completion = len(self.request.token_ids), sum(len(made.token_ids) for made in choices)
        return Usage(
            prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion, prompt_tokens_details=self.cache_details()
        )

    def cache_details(self) -> PromptTokensDetails | None:
        return PromptTokensDetails(cached_tokens=self.cached_tokens) if self.cached_tokens else None


def part_of(news: ChoiceOutput) -> GenerateChunkChoice:
    return GenerateChunkChoice(
        index=news.index,
        token_ids=news.token_ids,
        logprobs=None if news.rows is None else generate_logprobs(news.token_ids, news.rows),
        finish_reason=news.finish_reason,
        stop_reason=news.stop_reason,
    )


def record(made: Made, part: GenerateChunkChoice) -> None:
    made.token_ids += part.token_ids or ()
    if part.logprobs is not None:
        made.logprobs.append(part.logprobs)
    made.finish_reason, made.stop_reason = part.finish_reason, part.stop_reason


def weight_versions(made: Made) -> list[dict[str, str | int]]:
    """Which weights made which tokens, as [start, end) of the output."""
    return [{"version": WEIGHTS, "start": 0, "end": len(made.token_ids)}]
