"""The coupled completions answer, streamed or whole: choices of all prompts in one list, the prompt before the text where it is echoed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from inference.derender.answers import FINGERPRINT, Answer, Prompt, ending
from inference.derender.choice import Choice, Delta, Ending, skips_specials
from inference.detokenize import Detokenizer
from inference.errors import InternalError
from inference.logprobs import TokenNamer, prompt_entries
from inference.model import ServedModel
from inference.protocol.completions import (
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionChunkChoice,
    CompletionLogprobs,
    CompletionRequest,
)
from inference.protocol.generate import GenerateChunkChoice
from inference.rendered import Rendered
from inference.resolve import Effective


@dataclass(slots=True)
class TextNews:
    """What is new of a choice."""

    text: str
    token_ids: list[int]
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None


class TextChoice:
    """A choice with its names and, until they are out, the echoed prompt's text and logprobs."""

    def __init__(self, choice: Choice, namer: TokenNamer, prompt: Prompt, *, echo_only: bool) -> None:
        self.choice = choice
        self.namer = namer
        self.prompt = prompt
        self.echo_only = echo_only
        self.begun = False
        self.news: list[TextNews] = []

    def feed(self, delta: Delta) -> TextNews:
        news = TextNews(delta.text, delta.token_ids, None, delta.finish_reason, delta.stop_reason)
        if self.echo_only:
            self._hide_output(news, delta)
        echo = None if self.begun else self.prompt.rendered.echo_text
        if delta.entries is not None:
            news.logprobs = self._logprobs(delta, echoing=echo is not None)
        self.namer.pass_by(news.token_ids)
        if echo is not None:
            news.text = echo + news.text
        self.begun = True
        return news

    def _hide_output(self, news: TextNews, delta: Delta) -> None:
        """The one token that had to be generated was not asked for: not shown, not counted."""
        news.text, news.token_ids, news.stop_reason = "", [], None
        news.finish_reason = "length" if delta.finish_reason == "stop" else delta.finish_reason
        delta.entries = None if delta.entries is None else []
        self.choice.count = 0

    def _logprobs(self, delta: Delta, *, echoing: bool) -> CompletionLogprobs:
        own = [] if delta.entries is None else delta.entries
        if not echoing:
            return self.namer.completion(own)
        ids = self.prompt.rendered.token_ids
        if self.prompt.logprobs is None:
            raise InternalError("The node gave no prompt logprobs, which echo with logprobs needs.")
        return self.namer.completion([*prompt_entries(self.prompt.logprobs, ids), *own], first_id=ids[0])


class CompletionAnswer(Answer):
    def __init__(
        self,
        request: CompletionRequest,
        effective: Effective,
        model: ServedModel,
        rendered: Sequence[Rendered],
        *,
        request_id: str,
        created: int,
    ) -> None:
        super().__init__(request, effective, model, rendered, request_id=request_id, created=created)
        self.echo = request.echo is True
        self.wants_logprobs = request.logprobs is not None or request.logprob_token_ids is not None
        self.echo_only = self.echo and request.max_tokens == 0
        ends, as_ids, keep = ending(request, effective, model), effective["return_tokens_as_token_ids"], kept_candidates(request)
        for each in rendered:
            self.prompts.append(Prompt(each, [self._counter(each, ends) for _ in range(self.n)]))
        self.choices = [
            TextChoice(counter, TokenNamer(self.tokenizer, as_ids=as_ids, keep=keep, coupled=True), prompt, echo_only=self.echo_only)
            for prompt in self.prompts
            for counter in prompt.counters
        ]

    def _counter(self, rendered: Rendered, ends: Ending) -> Choice:
        detokenizer = Detokenizer(self.tokenizer, skip_special_tokens=skips_specials(rendered.generate.sampling_params))
        detokenizer.seed(rendered.token_ids)
        return Choice(detokenizer, ends)

    def start(self) -> list[CompletionChunk]:
        return []

    def whole(self) -> Completion:
        return Completion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[self._whole_choice(index, choice) for index, choice in enumerate(self.choices)],
            system_fingerprint=FINGERPRINT,
            usage=self.usage,
        )

    def _news(self, prompt: int, part: GenerateChunkChoice) -> CompletionChunk | None:
        index = prompt * self.n + part.index
        choice = self.choices[index]
        first = not choice.begun
        ids = [] if part.token_ids is None else part.token_ids
        delta = choice.choice.feed(ids, self._entries(part, self.wants_logprobs), part.finish_reason, part.stop_reason)
        news = choice.feed(delta)
        if self.streaming:
            return self._shown(index, choice, news, first)
        choice.news.append(news)
        return None

    def _shown(self, index: int, choice: TextChoice, news: TextNews, first: bool) -> CompletionChunk | None:
        ids = news.token_ids if self.return_ids else None
        if not news.text and news.finish_reason is None and news.logprobs is None and not ids:
            return None
        made = CompletionChunkChoice(
            index=index,
            text=news.text,
            logprobs=news.logprobs,
            finish_reason=news.finish_reason,
            stop_reason=news.stop_reason if news.finish_reason is not None else None,
            prompt_token_ids=choice.prompt.rendered.token_ids if first and (self.return_ids or self.echo) else None,
            token_ids=ids,
        )
        chunk = CompletionChunk(id=self.id, created=self.created, model=self.model, choices=[made])
        if self.continuous:
            chunk.usage = self._usage(len(choice.prompt.rendered.token_ids), choice.choice.count)
            chunk.usage.prompt_tokens_details = chunk.usage.completion_tokens_details = UNSET
        return chunk

    def _usage_chunk(self) -> CompletionChunk:
        return CompletionChunk(
            id=self.id, created=self.created, model=self.model, choices=[], usage=self._stream_usage(), system_fingerprint=FINGERPRINT
        )

    def _whole_choice(self, index: int, choice: TextChoice) -> CompletionChoice:
        news = choice.news
        return CompletionChoice(
            index=index,
            text="".join([part.text for part in news]),
            logprobs=joined([part.logprobs for part in news if part.logprobs is not None]),
            finish_reason=news[-1].finish_reason if news else None,
            stop_reason=news[-1].stop_reason if news else None,
            token_ids=[i for part in news for i in part.token_ids] if self.return_ids else None,
            prompt_logprobs=choice.prompt.logprobs,
            prompt_token_ids=choice.prompt.rendered.token_ids if self.return_ids else None,
        )


def joined(parts: list[CompletionLogprobs]) -> CompletionLogprobs | None:
    if not parts:
        return None
    return CompletionLogprobs(
        tokens=[token for part in parts for token in part.tokens],
        token_logprobs=[logprob for part in parts for logprob in part.token_logprobs],
        top_logprobs=[top for part in parts for top in part.top_logprobs],
        text_offset=[offset for part in parts for offset in part.text_offset],
    )


def kept_candidates(request: CompletionRequest) -> int | None:
    """The sampled token and the asked number of others; None for all (pipeline.md 8.5)."""
    if request.logprobs is None or request.logprobs == -1 or request.logprob_token_ids is not None:
        return None
    return request.logprobs + 1
