"""The wire of `/v1/completions`: OpenAI's legacy request, answer and stream chunk, with vLLM's extensions."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from inference.protocol.generate import Usage
from inference.protocol.openai import OpenAIRequest


class CompletionRequest(OpenAIRequest, kw_only=True):
    """`prompt`: text, texts, token ids, or lists of token ids; each entry is a prompt of its own."""

    prompt: str | list[Any] | None = None
    logprobs: int | None = None
    suffix: str | None = None


class CompletionLogprobs(Struct, kw_only=True):
    """Parallel lists, one entry per token; offsets in code points."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float | None] | None] = []
    text_offset: list[int] = []


class CompletionChoice(Struct, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    prompt_token_ids: list[int] | None = None
    routed_experts: Any = None


class Completion(Struct, kw_only=True):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: Usage
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    metrics: Any = None


class CompletionChunkChoice(Struct, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class CompletionChunk(Struct, kw_only=True):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: Usage | None | UnsetType = UNSET
    system_fingerprint: str | None | UnsetType = UNSET
    metrics: Any | UnsetType = UNSET
