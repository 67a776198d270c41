"""What a chat or completion request may not ask for, field by field: what makes no sense, and what nothing here honours."""

from __future__ import annotations

from typing import Any

from inference.errors import BadRequest
from inference.limits import check_salt
from inference.model import ServedModel
from inference.parsing import tool_choice
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.completions import CompletionRequest
from inference.protocol.openai import OpenAIRequest
from inference.resolve import Effective

UNSUPPORTED = ("logits_processors",)
UNSUPPORTED_IN_CHAT = (*UNSUPPORTED, "functions", "function_call", "audio", "mm_processor_kwargs")


def check_chat(request: ChatCompletionRequest, effective: Effective, model: ServedModel) -> None:
    check_common(request, UNSUPPORTED_IN_CHAT)
    top = effective.values.get("top_logprobs")
    if top is not None and not request.logprobs:
        raise BadRequest("top_logprobs needs logprobs to be true.", "top_logprobs")
    if top is not None and top < -1:
        raise BadRequest(f"top_logprobs must be at least 0, or -1 for all, got {top}.", "top_logprobs")
    if request.modalities is not None and request.modalities != ["text"]:
        raise BadRequest("modalities other than text are not supported.", "modalities")
    if request.strict is not None and request.required_prefix_token_ids is None:
        raise BadRequest("strict needs required_prefix_token_ids.", "strict")
    check_template(request, effective, model)
    check_tools(request, model)


def check_template(request: ChatCompletionRequest, effective: Effective, model: ServedModel) -> None:
    if request.continue_final_message and effective["add_generation_prompt"]:
        raise BadRequest("continue_final_message needs add_generation_prompt to be false.", "continue_final_message")
    if request.chat_template is not None and not model.trust_request_chat_template:
        raise BadRequest("chat_template in a request is refused: the server runs without --trust-request-chat-template.", "chat_template")


def check_completion(request: CompletionRequest, effective: Effective, model: ServedModel) -> None:
    check_common(request, UNSUPPORTED)
    if request.suffix is not None:
        raise BadRequest("suffix is not supported: this model does not fill in the middle.", "suffix")
    if request.logprobs is not None and request.logprobs < -1:
        raise BadRequest(f"logprobs must be at least 0, or -1 for all, got {request.logprobs}.", "logprobs")


def check_common(request: OpenAIRequest, unsupported: tuple[str, ...]) -> None:
    for name in unsupported:
        if getattr(request, name) is not None:
            raise BadRequest(f"{name} is not supported.", name)
    if request.use_beam_search:
        raise BadRequest("use_beam_search is not supported.", "use_beam_search")
    if request.length_penalty is not None and request.length_penalty != 1:
        raise BadRequest("length_penalty is not supported: it needs beam search.", "length_penalty")
    if request.best_of is not None and request.best_of != (1 if request.n is None else request.n):
        raise BadRequest("best_of is not supported unless it equals n.", "best_of")
    check_stream_fields(request)
    check_salt(request.cache_salt)
    check_truncation(request.truncate_prompt_tokens)


def check_stream_fields(request: OpenAIRequest) -> None:
    options = request.stream_options
    named = options is not None and (options.include_usage is not None or options.continuous_usage_stats is not None)
    if named and not request.stream:
        raise BadRequest("stream_options needs stream to be true.", "stream_options")
    if request.prompt_logprobs is not None:
        if request.stream:
            raise BadRequest("prompt_logprobs is not available with stream.", "prompt_logprobs")
        if request.prompt_logprobs < -1:
            raise BadRequest("prompt_logprobs must be at least 0, or -1 for all.", "prompt_logprobs")


def check_truncation(keep: int | None) -> None:
    if keep is not None and keep != -1 and keep < 1:
        raise BadRequest(f"truncate_prompt_tokens must be at least 1, or -1 for what fits, got {keep}.", "truncate_prompt_tokens")


def check_tools(request: ChatCompletionRequest, model: ServedModel) -> None:
    choice = request.tool_choice
    if request.tools is not None and not request.tools:
        raise BadRequest("tools must not be empty.", "tools")
    if request.tools is None:
        if choice is not None and choice != "none":
            raise BadRequest("tool_choice needs tools.", "tool_choice")
        return
    for i, tool in enumerate(request.tools):
        if not isinstance(tool_name(tool), str):
            raise BadRequest(f"tools.{i} must be a function with a name.", "tools")
    check_tool_choice(tool_choice(request), request.tools, model)


def check_tool_choice(choice: str | dict[str, Any] | None, tools: list[dict[str, Any]], model: ServedModel) -> None:
    if isinstance(choice, dict):
        if tool_name(choice) not in [tool_name(tool) for tool in tools]:
            raise BadRequest("tool_choice names a tool that is not in tools.", "tool_choice")
    elif choice not in ("none", "auto", "required"):
        raise BadRequest(f'tool_choice must be "none", "auto", "required" or a function, got {choice!r}.', "tool_choice")
    if choice != "none" and model.tool_call_parser is None:
        raise BadRequest("tools need a server with --tool-call-parser (and --enable-auto-tool-choice for tool_choice auto).", "tool_choice")
    if choice == "auto" and not model.enable_auto_tool_choice:
        raise BadRequest('tool_choice "auto" needs a server with --enable-auto-tool-choice.', "tool_choice")


def tool_name(tool: dict[str, Any]) -> Any:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else None
