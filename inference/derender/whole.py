"""`/derender`, whole answers: a generate response in tokens mode becomes what the coupled endpoint would have answered (pipeline.md 10)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from msgspec import UNSET

from inference.derender.answers import ending
from inference.derender.bounds import check_count, check_length, check_response, checked_entries, choice_ids
from inference.derender.chat_answer import kept_candidates
from inference.derender.chat_choice import ChatChoice, whole_offsets
from inference.derender.choice import Ending
from inference.derender.completion_answer import kept_candidates as kept_in_completion
from inference.detokenize import Detokenizer
from inference.errors import SchemaError
from inference.logprobs import TokenNamer
from inference.model import MAX_SEQUENCES, ServedModel
from inference.parsing import required_context
from inference.protocol import chat
from inference.protocol.chat import ChatCompletion, ChatLogprobs
from inference.protocol.completions import Completion, CompletionChoice
from inference.protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from inference.protocol.generate import GenerateChoice, GenerateResponse, ParseContext, TokenLogprobs, Usage
from inference.resolve import Effective

Checked = tuple[GenerateChoice, list[int], list[TokenLogprobs] | None]
NO_ENDING = Ending()  # ids are decoded as they are; what a stop string cut comes back (pipeline.md 18.6)


def derender_chat(request: DerenderChatRequest, model: ServedModel, effective: Effective) -> ChatCompletion:
    """`effective` is what applies to `chat_request`, or to a request that sets nothing.

    Raises:
        ApiError: the body is out of bounds or cannot be derendered; `param` names the place.
    """
    name = model.answering_to(request.model)
    response = request.generate_response
    check_response(response, model, "body.generate_response")
    check_length("prompt_token_ids", request.prompt_token_ids, model, "prompt_token_ids")
    context = required_context(request.chat_request, effective, model)
    choices = checked_choices(response, model, "body.generate_response")
    prompt = response.prompt_token_ids if request.prompt_token_ids is None else request.prompt_token_ids
    prompt_tokens = 0 if request.prompt_tokens is None else request.prompt_tokens
    return ChatCompletion(
        id=answer_id(response.request_id),
        created=int(time.time()),
        model=name,
        choices=[chat_choice(checked, request, context, model, effective, prompt) for checked in choices],
        usage=usage(prompt_tokens, sum(len(ids) for _, ids, _ in choices)),
        prompt_logprobs=response.prompt_logprobs,
        kv_transfer_params=response.kv_transfer_params,
        metrics=response.metrics,
    )


def chat_choice(
    checked: Checked,
    request: DerenderChatRequest,
    context: ParseContext,
    model: ServedModel,
    effective: Effective,
    prompt: Sequence[int] | None,
) -> chat.ChatChoice:
    choice, ids, entries = checked
    maker = ChatChoice(
        context, model, prompt, chat_namer(request.chat_request, model, effective), skip_special_tokens=skips(model, effective),
        ending=shown_ending(request.chat_request, model, effective), offsets=wants_offsets(request.chat_request),
    )
    reason = choice.finish_reason
    news = maker.feed(ids, entries, reason, choice.stop_reason)
    rest = [] if reason is not None else [maker.flush()]
    empty = ChatLogprobs() if choice.logprobs is not None and entries is None and not maker.hidden else None
    return chat.ChatChoice(
        index=choice.index,
        message=maker.message([news, *rest]),
        logprobs=empty if news.logprobs is None else news.logprobs,
        finish_reason=news.finish_reason,
        stop_reason=news.stop_reason,
        token_ids=news.token_ids if effective["return_token_ids"] else None,
        output_offsets=whole_offsets([news, *rest]) if wants_offsets(request.chat_request) else UNSET,
    )


def derender_completion(request: DerenderCompletionRequest, model: ServedModel, effective: Effective) -> Completion:
    """Choices of all responses in one list. No parser runs here.

    Raises:
        ApiError: the body is out of bounds or cannot be derendered; `param` names the place.
    """
    name = model.answering_to(request.model)
    responses = request.generate_responses
    check_count("generate_responses", len(responses), MAX_SEQUENCES, "VLLM_MAX_N_SEQUENCES", "generate_responses")
    check_matching(request)
    choices: list[CompletionChoice] = []
    for i, response in enumerate(responses):
        check_response(response, model, f"body.generate_responses.{i}")
        prompt = None if request.prompt_token_ids is None else request.prompt_token_ids[i]
        check_length("prompt_token_ids", prompt, model, f"prompt_token_ids.{i}")
        choices += completion_choices(response, request, model, effective, prompt, i, len(choices))
    completion = sum(len(choice.token_ids) for response in responses for choice in response.choices if choice.token_ids is not None)
    transfers = [response.kv_transfer_params for response in responses]
    return Completion(
        id=answer_id(responses[0].request_id),
        created=int(time.time()),
        model=name,
        choices=choices,
        usage=usage(sum([] if request.prompt_tokens is None else request.prompt_tokens), completion),
        kv_transfer_params=transfers[0] if all(each == transfers[0] for each in transfers) else None,
        metrics=responses[0].metrics if len(responses) == 1 else None,
    )


def completion_choices(
    response: GenerateResponse,
    request: DerenderCompletionRequest,
    model: ServedModel,
    effective: Effective,
    prompt: Sequence[int] | None,
    position: int,
    start: int,
) -> list[CompletionChoice]:
    original = request.completion_request
    keep = None if original is None else kept_in_completion(original)
    made = []
    for index, (choice, ids, entries) in enumerate(checked_choices(response, model, f"body.generate_responses.{position}"), start):
        detokenizer = Detokenizer(model.tokenizer, skip_special_tokens=effective["skip_special_tokens"])
        detokenizer.seed(response.prompt_token_ids if prompt is None else prompt)
        namer = TokenNamer(model.tokenizer, as_ids=effective["return_tokens_as_token_ids"], keep=keep)
        made.append(CompletionChoice(
            index=index,
            text=detokenizer.feed(ids),
            logprobs=None if entries is None else namer.completion(entries),
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
            token_ids=ids if effective["return_token_ids"] else None,
            prompt_logprobs=response.prompt_logprobs,
        ))
    return made


def checked_choices(response: GenerateResponse, model: ServedModel, path: str) -> list[Checked]:
    """Every choice within its bounds, before the first is decoded."""
    checked = []
    for i, choice in enumerate(response.choices):
        own = f"{path}.choices.{i}"
        checked.append((choice, choice_ids(choice, model, own), checked_entries(choice.logprobs, model, f"{own}.logprobs")))
    return checked


def check_matching(request: DerenderCompletionRequest) -> None:
    """Lists beside generate_responses go with them one by one."""
    count = len(request.generate_responses)
    for name in ("prompt_tokens", "prompt_token_ids"):
        values = getattr(request, name)
        if values is not None and len(values) != count:
            raise SchemaError(f"{name} length ({len(values)}) must equal generate_responses length ({count}).", "body")


def chat_namer(original: chat.ChatCompletionRequest | None, model: ServedModel, effective: Effective) -> TokenNamer:
    says = original is not None and (original.logprobs is True or original.top_logprobs is not None)
    keep = kept_candidates(original, effective) if original is not None and says else None
    return TokenNamer(model.tokenizer, as_ids=effective["return_tokens_as_token_ids"], keep=keep)


def skips(model: ServedModel, effective: Effective) -> bool:
    """A parser must see the markers, special or not (pipeline.md 7)."""
    wanted: bool = effective["skip_special_tokens"]
    return False if model.has_parser else wanted


def shown_ending(original: chat.ChatCompletionRequest | None, model: ServedModel, effective: Effective) -> Ending:
    """Where a parser must see special tokens and the request did not ask for them, the one that ended the answer is left out, as coupled
    answers leave it out: it is no part of the message."""
    if original is None or not model.has_parser or not effective["skip_special_tokens"]:
        return NO_ENDING
    return replace(ending(original, effective, model), stops=())


def wants_offsets(original: chat.ChatCompletionRequest | None) -> bool:
    return original is not None and original.return_output_offsets is True


def answer_id(request_id: str | None) -> str:
    return secrets.token_hex(8) if request_id is None else request_id


def usage(prompt: int, completion: int) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
