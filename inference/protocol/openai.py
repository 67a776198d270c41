"""What OpenAI's request shapes have in common, and the one way in which None, absent and null are the same."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from inference.protocol.generate import Int64, StreamOptions

OwnId = Annotated[str, Meta(max_length=256)]  # every chunk of a stream repeats it


class OpenAIRequest(Struct, kw_only=True):
    """The fields of chat and completions alike. Unknown keys are accepted and ignored, as OpenAI's servers do."""

    model: str | None = None
    request_id: OwnId | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    length_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_token_offsets: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    use_beam_search: bool | None = None
    best_of: int | None = None
    cache_salt: str | None = None
    priority: Int64 | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None
    logits_processors: list[Any] | None = None
    user: str | None = None


class ModelCard(Struct, kw_only=True):
    id: str
    created: int
    object: str = "model"
    owned_by: str = "tokenry"
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None
    permission: list[Any] = []


class ModelList(Struct, kw_only=True):
    data: list[ModelCard]
    object: str = "list"
