"""Render: a request in OpenAI's terms becomes a GenerateRequest. Template, tokenizer, sampling values; nothing is generated.

`chat_settings` and `completion_settings` give the override rule what the request sets; everything below takes the effective values.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import UNSET, structs

from inference import chat_template
from inference.errors import BadRequest
from inference.limits import check_choices
from inference.messages import conversation
from inference.model import ServedModel
from inference.parsers import adjusts_skip_special_tokens, reasoning_ended, structural_tag
from inference.parsing import parse_context, template_kwargs
from inference.prompts import fitting, split_prompts, tokenize
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.completions import CompletionRequest
from inference.protocol.generate import GenerateRequest, ParseContext, SamplingParams, StreamOptions
from inference.protocol.openai import OpenAIRequest
from inference.rendered import Rendered as Rendered
from inference.resolve import BUILT_IN, TEMPLATE_KWARGS, Effective
from inference.sampling import wire_params
from inference.splice import Splice, spliced
from inference.structure import NO_STRUCTURE, check_structure
from inference.validate import check_chat, check_completion, check_template
from inference.values import given, stop_list

COMPLETION_BUILT_IN: Mapping[str, Any] = MappingProxyType({**BUILT_IN, "max_tokens": 16})


def chat_settings(request: ChatCompletionRequest) -> dict[str, Any]:
    """The fields that the request sets, by dotted name, as `resolve` takes them."""
    found = settings(request)
    if request.max_completion_tokens is not None:
        found["max_tokens"] = request.max_completion_tokens
    return found


def completion_settings(request: CompletionRequest) -> dict[str, Any]:
    """Echo without output is asked for by max_tokens 0; one token is generated for it, and not shown."""
    found = settings(request)
    if echo_only(request):
        found["max_tokens"] = 1
    return found


def settings(request: OpenAIRequest) -> dict[str, Any]:
    found = {name: value for name, value in structs.asdict(request).items() if value is not None}
    if request.stop is not None:
        found["stop"] = list(stop_list(request.stop))
    options = found.pop("stream_options", None)
    if options is not None:
        found |= {f"stream_options.{name}": value for name, value in structs.asdict(options).items() if value is not None}
    return found


def echo_only(request: CompletionRequest) -> bool:
    return request.echo is True and request.max_tokens == 0


def render_chat(request: ChatCompletionRequest, effective: Effective, model: ServedModel, request_id: str) -> Rendered:
    """`request_id` comes complete (`chatcmpl-...`).

    Raises:
        BadRequest, SchemaError: the request cannot be honoured; `param` names the field.
    """
    check_chat(request, effective, model)
    check_choices(effective.values.get("n", 1), 1, model)
    messages = conversation(request.messages)
    context = parse_context(request, effective)
    kwargs = given(context.chat_template_kwargs, {})
    text = templated(request, messages, kwargs, model)
    splice: Splice | None = None
    if request.required_prefix_token_ids is None:
        ids, offsets = tokenize(text, request, model, add_special_tokens=given(request.add_special_tokens, False))
    else:
        splice = spliced(request, messages, text, lambda others: templated(request, others, kwargs, model), model)
        ids, offsets = fitting(splice.token_ids, request, model), None
    params = wire_params(
        request,
        effective,
        max_tokens=max_tokens(effective, len(ids), model),
        logprobs=chat_logprobs(request, effective),
        prompt_logprobs=chat_prompt_logprobs(request, effective),
    )
    adjust_for_tools(params, request, context, model)
    generate = GenerateRequest(
        request_id=request_id,
        token_ids=ids,
        token_offsets=offsets,
        sampling_params=params,
        parse_context=as_json(context),
        reasoning_parser_kwargs=None if model.reasoning_parser is None else {TEMPLATE_KWARGS: kwargs},
        reasoning_ended=reasoning_verdict(context, ids, model),
        **carried(request, effective),
    )
    if splice is not None:
        generate.prefix_match, generate.prefix_first_difference = splice.match, splice.first_difference
        text = model.tokenizer.decode(ids)
    return Rendered(generate, text, echo_of(messages) if request.echo else None)


def chat_tokens(request: ChatCompletionRequest, effective: Effective, model: ServedModel) -> list[int]:
    """The prompt's ids alone, however long it is."""
    check_template(request, effective, model)
    messages = conversation(request.messages)
    text = templated(request, messages, template_kwargs(request, effective), model)
    return model.tokenizer.encode(text, add_special_tokens=given(request.add_special_tokens, False))


def adjust_for_tools(params: SamplingParams, request: ChatCompletionRequest, context: ParseContext, model: ServedModel) -> None:
    """The model's markers must reach the parser, and a forced call is held to the model's own markup: response_format is of answers."""
    tools, choice, family = context.tools, context.tool_choice, model.tool_call_parser
    if family is None or tools is None:
        return
    if adjusts_skip_special_tokens(family, tools, choice, enable_auto=model.enable_auto_tool_choice):
        params.skip_special_tokens = False
    parallel = context.parallel_tool_calls
    tag = structural_tag(family, tools, choice, vocabulary=model.tokenizer, parallel_tool_calls=parallel)
    if tag is not None:
        if request.structured_outputs is not None:
            raise BadRequest("structured_outputs cannot be combined with a forced tool call.", "structured_outputs")
        params.structured_outputs = {**NO_STRUCTURE, "structural_tag": tag}
        check_structure(params.structured_outputs, "tools")


def reasoning_verdict(context: ParseContext, ids: list[int], model: ServedModel) -> bool | None:
    """`reasoning_ended`: whether a grammar binds the output from its first token on."""
    if model.reasoning_parser is None:
        return None
    if context.include_reasoning is False:
        return True
    kwargs = context.chat_template_kwargs
    return reasoning_ended(model.reasoning_parser, tokenizer=model.tokenizer, prompt_token_ids=ids, chat_template_kwargs=kwargs)


def chat_prompt_logprobs(request: ChatCompletionRequest, effective: Effective) -> int | None:
    """An echo brings the prompt's own along, as vLLM's does; a stream has no place for them."""
    if request.prompt_logprobs is not None or not request.echo or request.stream:
        return request.prompt_logprobs
    count: int = effective.values.get("top_logprobs", 0)
    return count


def render_completion(request: CompletionRequest, effective: Effective, model: ServedModel, request_id: str) -> list[Rendered]:
    """One per prompt; several get the ids `<request_id>-0`, `-1`, ...

    Raises:
        BadRequest, SchemaError: the request cannot be honoured; `param` names the field.
    """
    check_completion(request, effective, model)
    prompts = split_prompts(request.prompt)
    check_choices(effective.values.get("n", 1), len(prompts), model)
    ids = [request_id] if len(prompts) == 1 else [f"{request_id}-{i}" for i in range(len(prompts))]
    return [render_prompt(prompt, own_id, request, effective, model) for prompt, own_id in zip(prompts, ids, strict=True)]


def render_prompt(
    prompt: str | list[int], request_id: str, request: CompletionRequest, effective: Effective, model: ServedModel
) -> Rendered:
    if isinstance(prompt, str):
        ids, offsets = tokenize(prompt, request, model, add_special_tokens=given(request.add_special_tokens, True))
    else:
        ids, offsets = fitting(prompt, request, model), None
    prompt_logprobs = request.prompt_logprobs
    if prompt_logprobs is None and request.echo:
        prompt_logprobs = request.logprobs
    generate = GenerateRequest(
        request_id=request_id,
        token_ids=ids,
        token_offsets=offsets,
        sampling_params=wire_params(
            request,
            effective,
            max_tokens=max_tokens(effective, len(ids), model),
            logprobs=None if request.logprob_token_ids is not None else request.logprobs,
            prompt_logprobs=prompt_logprobs,
        ),
        **carried(request, effective),
    )
    text = prompt if isinstance(prompt, str) and request.truncate_prompt_tokens is None else None
    return Rendered(generate, text, (model.tokenizer.decode(ids) if text is None else text) if request.echo else None)


def carried(request: OpenAIRequest, effective: Effective) -> dict[str, Any]:
    """What is copied as it is."""
    return {
        "model": request.model,
        "stream": given(request.stream, False),
        "stream_options": stream_options(request, effective),
        "cache_salt": request.cache_salt,
        "priority": given(request.priority, 0),
    }


def stream_options(request: OpenAIRequest, effective: Effective) -> StreamOptions | None:
    wanted = effective["stream_options.include_usage"]
    if not request.stream or (request.stream_options is None and not wanted):
        return None
    continuous = None if request.stream_options is None else request.stream_options.continuous_usage_stats
    return StreamOptions(include_usage=wanted, continuous_usage_stats=given(continuous, False))


def templated(request: ChatCompletionRequest, messages: list[dict[str, Any]], kwargs: dict[str, Any], model: ServedModel) -> str:
    """The prompt's text, by the request's template where that is trusted, else the server's, else the tokenizer's."""
    tokenizer = model.tokenizer
    own = tokenizer.chat_template if request.tools is None else tokenizer.tool_chat_template
    template = given(request.chat_template, given(model.chat_template, own))
    if template is None:
        raise BadRequest("This model has no chat template: use /v1/completions, or start the server with --chat-template.", "messages")
    variables = {**tokenizer.special_tokens, "tools": request.tools, "documents": None, **kwargs, "messages": messages}
    if request.continue_final_message:
        return chat_template.render_open_ended(template, messages, variables)
    return chat_template.render(template, variables)


def max_tokens(effective: Effective, prompt_tokens: int, model: ServedModel) -> int:
    """Never more than fits; asking for more than could fit with any prompt is refused, a default may."""
    left = model.max_model_len - prompt_tokens
    wanted = effective["max_tokens"]
    if wanted is None:
        return left
    if wanted > model.max_model_len and effective.sources["max_tokens"] == "request":
        raise BadRequest(f"max_tokens={wanted} is greater than max_model_len={model.max_model_len}.", "max_tokens")
    result: int = min(wanted, left)
    return result


def chat_logprobs(request: ChatCompletionRequest, effective: Effective) -> int | None:
    """Null and 0 differ: 0 asks for the sampled token's own."""
    if not request.logprobs or request.logprob_token_ids is not None:
        return None
    count: int = effective.values.get("top_logprobs", 0)
    return count


def as_json(context: ParseContext) -> dict[str, Any]:
    """Without the override where there is none: nodes that do not know the key refuse it even when it is null."""
    return {name: value for name, value in structs.asdict(context).items() if value is not UNSET}


def echo_of(messages: list[dict[str, Any]]) -> str | None:
    """A chat echoes its last message, if that is the assistant's."""
    last = messages[-1]
    return last["content"] if last["role"] == "assistant" and isinstance(last.get("content"), str) else None
