"""The wire of `/v1/chat/completions`: OpenAI's request, answer and stream chunk, with vLLM's extensions."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from inference.protocol.generate import PrefixMatch, TokenId, Usage
from inference.protocol.openai import OpenAIRequest


class ChatCompletionRequest(OpenAIRequest, kw_only=True):
    """Messages stay plain objects: a chat template may read keys that no type foresees."""

    messages: list[dict[str, Any]]
    logprobs: bool | None = None
    top_logprobs: int | None = None
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None
    return_output_offsets: bool | None = None
    required_prefix_token_ids: list[TokenId] | None = None  # the ids so far, exactly: only what is new is rendered, after them
    strict: bool | None = None  # refuse a prefix that is not what the messages render to


class TopLogprob(Struct, kw_only=True, gc=False):
    token: str
    logprob: float
    bytes: tuple[int, ...] | None = None


class ChatLogprob(TopLogprob, kw_only=True, gc=False):
    top_logprobs: list[TopLogprob] = []


class ChatLogprobs(Struct, kw_only=True):
    content: list[ChatLogprob] | None = None


class TokenOffset(Struct, kw_only=True):
    """One output token: [start, end) in code points of all that the model wrote, its own bytes, and the part that it became.

    `call` is the index of the tool call, where it is part of one's arguments.
    """

    token_id: int
    start: int
    end: int
    part: Literal["reasoning", "content", "tool_call", "markup", "stop"] | None = None
    call: int | None = None
    bytes: list[int]


class FunctionCall(Struct, kw_only=True):
    """In a message both are strings; in a stream's delta each is null where this delta does not carry it."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(Struct, kw_only=True):
    id: str
    function: FunctionCall
    type: str = "function"


class ToolCallDelta(Struct, kw_only=True):
    """The first delta of a call carries id, type and name; later ones only more of the arguments."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionCall


class SparseFunctionCall(FunctionCall, kw_only=True, omit_defaults=True):
    """Written without what it does not carry."""


class SparseToolCallDelta(ToolCallDelta, kw_only=True, omit_defaults=True):
    """The same in coupled streams: OpenAI's client takes a later null for a change of what an earlier delta said."""


class ChatMessage(Struct, kw_only=True):
    """`tool_calls` is left out when there are none; every other key is always there."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    annotations: Any = None
    audio: Any = None
    function_call: Any = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(Struct, kw_only=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    routed_experts: Any = None
    output_offsets: list[TokenOffset] | None | UnsetType = UNSET


class ChatCompletion(Struct, kw_only=True):
    """A whole answer, all keys present."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: Usage
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    metrics: Any = None
    prefix_match: PrefixMatch | UnsetType = UNSET
    prefix_first_difference: int | None | UnsetType = UNSET


class ChatDelta(Struct, kw_only=True, gc=False):
    """Coupled streams leave out what is unset; streaming derender writes every key but `tool_calls`."""

    role: str | None | UnsetType = UNSET
    content: str | None | UnsetType = UNSET
    reasoning: str | None | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(Struct, kw_only=True, gc=False):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None | UnsetType = UNSET
    token_ids: list[int] | None | UnsetType = UNSET
    output_offsets: list[TokenOffset] | None | UnsetType = UNSET


class ChatChunk(Struct, kw_only=True):
    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None | UnsetType = UNSET
    system_fingerprint: str | None | UnsetType = UNSET
    prompt_token_ids: list[int] | None | UnsetType = UNSET
    prompt_text: str | None | UnsetType = UNSET
    metrics: Any | UnsetType = UNSET
    prefix_match: PrefixMatch | UnsetType = UNSET
    prefix_first_difference: int | None | UnsetType = UNSET
