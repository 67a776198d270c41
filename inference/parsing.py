"""From a chat request to the parser of its answer. What a parser must know travels as ParseContext, so that coupled answers, /derender and
a node's derender mode build the same parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from inference.errors import BadRequest
from inference.limits import REASONING_END_IDS
from inference.model import ServedModel
from inference.parsers import Parser, end_ids, make_parser, reasoning_ended
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.generate import GenerateRequest, ParseContext
from inference.resolve import TEMPLATE_KWARGS, Effective
from inference.values import given

TEMPLATE_FIELDS = ("documents", "reasoning_effort")


def parse_context(request: ChatCompletionRequest, effective: Effective) -> ParseContext:
    """Of the override only what the request itself says: whoever answers applies its own default (pipeline.md 6)."""
    override = request.return_tokens_as_token_ids
    return ParseContext(
        tools=request.tools,
        tool_choice=tool_choice(request),
        parallel_tool_calls=effective["parallel_tool_calls"],
        include_reasoning=effective["include_reasoning"],
        chat_template_kwargs=template_kwargs(request, effective),
        history_tool_call_cnt=history_tool_calls(request.messages),
        return_tokens_as_token_ids=UNSET if override is None else override,
    )


def choice_parser(
    context: ParseContext, model: ServedModel, prompt_token_ids: Sequence[int], *, tool_call_ids: Sequence[str] = (), spans: bool = True
) -> Parser | None:
    """A parser for one choice; None for a model that has none.

    Args:
        tool_call_ids: of calls that an earlier part of the same stream has begun.
        spans: whether an account of every character is wanted.
    """
    if not model.has_parser:
        return None
    return make_parser(
        model.reasoning_parser,
        model.tool_call_parser,
        tokenizer=model.tokenizer,
        prompt_token_ids=prompt_token_ids,
        tools=context.tools,
        tool_choice=context.tool_choice,
        parallel_tool_calls=context.parallel_tool_calls,
        include_reasoning=context.include_reasoning is not False,
        chat_template_kwargs=context.chat_template_kwargs,
        history_tool_call_cnt=0 if context.history_tool_call_cnt is None else context.history_tool_call_cnt,
        enable_auto_tool_choice=model.enable_auto_tool_choice,
        tool_call_ids=tool_call_ids,
        spans=spans,
    )


def reasoning_end_ids(request: GenerateRequest, model: ServedModel) -> Sequence[int]:
    """The ids after which a structure applies: the caller's, else those of this server's own parser; none where the output begins without
    reasoning, or is held to no structure.

    Raises:
        BadRequest: the output begins with reasoning, and nothing says how that ends.
    """
    params = request.sampling_params
    if params.structured_outputs is None:
        return ()
    ids = given(params.extra_args, {}).get(REASONING_END_IDS)
    if ids is not None:
        if not isinstance(ids, list) or not ids or any(type(i) is not int for i in ids):
            raise BadRequest(f"extra_args.{REASONING_END_IDS} must be a list of token ids.", f"extra_args.{REASONING_END_IDS}")
        return ids
    if request.reasoning_ended is not False and not hides_open_reasoning(request, model):
        return ()
    if model.loaded_tokenizer is None or model.reasoning_parser is None:
        raise BadRequest("reasoning_ended false with structured_outputs needs a server with a reasoning parser.", "reasoning_ended")
    return end_ids(model.reasoning_parser, model.tokenizer)


def hides_open_reasoning(request: GenerateRequest, model: ServedModel) -> bool:
    """Whether the output begins with reasoning that will not be shown. The wire then says that it has ended (pipeline.md 3), but a
    structure from the first token on would be read as reasoning, and nothing would be left to show."""
    context = given(request.parse_context, {})
    if context.get("include_reasoning") is not False or model.loaded_tokenizer is None:
        return False
    kwargs, prompt = context.get("chat_template_kwargs"), request.token_ids
    return reasoning_ended(model.reasoning_parser, tokenizer=model.tokenizer, prompt_token_ids=prompt, chat_template_kwargs=kwargs) is False


def check_parsers(model: ServedModel) -> None:
    """For the server's start: a parser that does not exist, or does not fit the tokenizer, is found out now and not by a request.

    Raises:
        ValueError: which one, and what is known instead.
    """
    choice_parser(ParseContext(), model, ())


def hides_tokens(context: ParseContext, model: ServedModel) -> bool:
    """Hidden reasoning must not come back through token ids or logprobs (pipeline.md 8.6)."""
    return model.has_parser and context.include_reasoning is False


def template_kwargs(request: ChatCompletionRequest, effective: Effective) -> dict[str, Any]:
    """What the template sees beside messages and tools, and what a parser may have to know of it."""
    own = {name: value for name in TEMPLATE_FIELDS if (value := getattr(request, name)) is not None}
    return {
        **effective[TEMPLATE_KWARGS],
        "add_generation_prompt": effective["add_generation_prompt"],
        "continue_final_message": request.continue_final_message is True,
        **own,
    }


def tool_choice(request: ChatCompletionRequest) -> str | dict[str, Any]:
    """As OpenAI defaults it: "auto" where tools are given, else "none"."""
    if request.tool_choice is not None:
        return request.tool_choice
    return "none" if request.tools is None else "auto"


def history_tool_calls(messages: list[dict[str, Any]]) -> int:
    """Calls in earlier assistant messages: some parsers number their ids on from there."""
    return sum(len(calls) for m in messages if m.get("role") == "assistant" and isinstance(calls := m.get("tool_calls"), list))


def required_context(request: ChatCompletionRequest | None, effective: Effective, model: ServedModel) -> ParseContext:
    """The context out of a /derender call's own copy of the request.

    Raises:
        BadRequest: a parser is configured and nothing says what the request was: detokenizing alone would leak its markup.
    """
    if request is not None:
        return parse_context(request, effective)
    if model.has_parser:
        raise BadRequest("chat_request is required: this model's answers are read by a parser.", "chat_request")
    return ParseContext()
