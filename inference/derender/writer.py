"""A node's own text: generate's modes text and derender, and stop strings in any mode (pipeline.md 5.3, 5.4).

It stands behind the tokens-mode answer: each choice's news in tokens come in, and go out as the mode wants them.
"""

from __future__ import annotations

from msgspec import UNSET

from inference.derender.chat_answer import delta_of
from inference.derender.chat_choice import ChatChoice, ChatNews, whole_logprobs
from inference.derender.choice import Ending, skips_specials
from inference.errors import BadRequest
from inference.logprobs import TokenNamer, entries_of
from inference.model import ServedModel
from inference.protocol.codec import convert
from inference.protocol.engine import Sampling
from inference.protocol.generate import GenerateChoice, GenerateChunkChoice, GenerateLogprobs, GenerateRequest, ParseContext
from inference.values import given, stop_list


def text_writer(request: GenerateRequest, sampling: Sampling, model: ServedModel, *, as_ids: bool) -> TextWriter | None:
    """The writer for a request, or None where there is no text to write or to look at.

    Args:
        as_ids: this node's default for return_tokens_as_token_ids.

    Raises:
        ApiError: `parse_context` is missing or not understood.
    """
    mode = given(request.output_mode, "tokens")
    if mode == "tokens" and not stop_list(request.sampling_params.stop):
        return None
    return TextWriter(mode, request, sampling, model, as_ids=as_ids)


class TextWriter:
    def __init__(self, mode: str, request: GenerateRequest, sampling: Sampling, model: ServedModel, *, as_ids: bool) -> None:
        self.mode = mode
        context = read_context(request, model) if mode == "derender" else ParseContext()
        override = context.return_tokens_as_token_ids
        shown_as_ids = as_ids if override is UNSET or override is None else override
        keep = kept_candidates(sampling) if mode == "derender" else None
        params = request.sampling_params
        self.choices = [
            ChatChoice(
                context,
                model,
                request.token_ids,
                TokenNamer(model.tokenizer, as_ids=shown_as_ids, keep=keep),
                skip_special_tokens=skips_specials(params),
                ending=node_ending(request, sampling, model),
                parses=mode == "derender",
            )
            for _ in range(sampling.n)
        ]
        self.news: list[list[ChatNews]] = [[] for _ in self.choices]

    @property
    def finished(self) -> bool:
        """Every choice has ended, by a stop string too: the engine may be told to stop."""
        return all(choice.choice.finish_reason is not None for choice in self.choices)

    def feed(self, part: GenerateChunkChoice) -> GenerateChunkChoice | None:
        """The news of one choice, in the mode's shape. None after its end: that is what the engine made beyond a stop string."""
        choice = self.choices[part.index]
        if choice.choice.finish_reason is not None:
            return None
        entries, before = entries_of(part.logprobs, "logprobs"), choice.choice.count
        news = choice.feed(given(part.token_ids, []), entries, part.finish_reason, part.stop_reason)
        self.news[part.index].append(news)
        made = GenerateChunkChoice(
            index=part.index,
            finish_reason=news.finish_reason,
            stop_reason=news.stop_reason,
            token_ids=given(part.token_ids, [])[: choice.choice.count - before],
            logprobs=news.logprobs,
        )
        if self.mode == "text":
            made.text = given(news.parsed.content, "")
        elif self.mode == "derender":
            made.delta = delta_of(news.parsed)
        else:
            made.logprobs = None if entries is None else GenerateLogprobs(content=entries[: choice.choice.count - before])
        return made

    def conceal(self, part: GenerateChunkChoice) -> None:
        """Take out the ids, once they are counted, where they would give hidden reasoning away."""
        if self.choices[part.index].hidden:
            part.token_ids = None

    def dress_whole(self, choice: GenerateChoice) -> GenerateChoice:
        """A whole choice in tokens becomes one in the mode's shape."""
        news, maker = self.news[choice.index], self.choices[choice.index]
        if self.mode == "tokens":
            return choice
        choice.logprobs = whole_logprobs(news)
        if self.mode == "text":
            choice.text = "".join([given(part.parsed.content, "") for part in news])
        else:
            choice.message = maker.message(news)
            choice.token_ids = None if maker.hidden else choice.token_ids
        return choice


def read_context(request: GenerateRequest, model: ServedModel) -> ParseContext:
    """Strictly: an unknown key may be an override that this node does not know, and is refused, even when it is null."""
    if request.parse_context is not None:
        return convert(ParseContext, request.parse_context, root="body.parse_context")
    if model.has_parser:
        raise BadRequest("parse_context is required in mode derender: this model's answers are read by a parser.", "parse_context")
    return ParseContext()


def node_ending(request: GenerateRequest, sampling: Sampling, model: ServedModel) -> Ending:
    return Ending(
        stops=stop_list(request.sampling_params.stop),
        eos_ids=frozenset() if sampling.ignore_eos else frozenset(model.eos_token_ids),
        stop_ids=frozenset(sampling.stop_token_ids),
        include=request.sampling_params.include_stop_str_in_output is True,
        min_tokens=sampling.min_tokens,
    )


def kept_candidates(sampling: Sampling) -> int | None:
    """As the coupled chat cuts them, so that both ways give the same answer; None for all."""
    return None if sampling.logprobs == -1 or sampling.logprob_token_ids is not None else sampling.logprobs
