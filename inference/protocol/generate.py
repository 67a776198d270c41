"""The wire of `/inference/v1/generate`: what render hands to generate, and generate to derender (vLLM's GenerateRequest and answers).

In a request None stands for absent and null alike: both mean "the default of the server that answers".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

TokenId = Annotated[int, Meta(ge=0)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
RequestId = Annotated[str, Meta(max_length=512)]  # a caller's own, and what endpoints and platforms put before it
OutputMode = Literal["tokens", "text", "derender"]
PrefixMatch = Literal["exact", "spliced", "drifted"]


class StreamOptions(Struct, kw_only=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingParams(Struct, kw_only=True, omit_defaults=True):
    """As it travels: a field that is None takes the node's default. `inference.sampling` gives the full values."""

    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    logprobs: int | bool | None = None
    prompt_logprobs: int | bool | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprob_token_ids: list[Any] | None = None
    detokenize: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    structured_outputs: dict[str, Any] | None = None
    extra_args: dict[str, Any] | None = None
    stream_interval: int | None = None
    # vLLM's own bookkeeping, in its render output: read and meant to have no effect here.
    output_kind: int | None = None
    skip_clone: bool | None = None
    skip_reading_prefix_cache: bool | None = None


class GenerateRequest(Struct, kw_only=True):
    """Body of generate and answer of render. Written with every key, nulls included."""

    request_id: RequestId | None = None
    token_ids: Annotated[list[TokenId], Meta(min_length=1)]
    token_offsets: list[list[int]] | None = None
    features: dict[str, Any] | None = None
    content_parts: list[Any] | None = None
    sampling_params: SamplingParams
    model: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None
    parse_context: dict[str, Any] | None = None
    return_token_ids: bool | None = None
    output_mode: OutputMode | None = "tokens"
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    priority: Int64 | None = 0
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    render_fingerprint: str | None | UnsetType = UNSET  # ours: which tokenizer, template and parsers rendered it
    strict: bool | None | UnsetType = UNSET  # ours: refuse another fingerprint instead of warning of it
    prefix_match: PrefixMatch | UnsetType = UNSET  # ours: how required_prefix_token_ids fit what was rendered
    prefix_first_difference: int | None | UnsetType = UNSET


class ParseContext(Struct, kw_only=True, forbid_unknown_fields=True):
    """What derender mode needs of the chat request. The override's key is left out, not null, when it is not set: older nodes refuse it."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True
    include_reasoning: bool | None = True
    chat_template_kwargs: dict[str, Any] | None = None
    history_tool_call_cnt: int | None = 0
    return_tokens_as_token_ids: bool | None | UnsetType = UNSET


class Candidate(Struct, kw_only=True, gc=False):
    """One token with its log-probability (natural log, never NaN or infinite on the wire) and vocabulary rank (1 = best).

    An answer may hold thousands. They can form no cycle, so the collector need not look at them (`gc=False`).
    """

    token_id: int
    logprob: float
    rank: int | None = None


class TokenLogprobs(Candidate, kw_only=True, gc=False):
    """The sampled token and its candidates: the sampled one first, then by rank."""

    top_logprobs: list[Candidate] = []


class GenerateLogprobs(Struct, kw_only=True):
    content: list[TokenLogprobs] | None = None


class PromptTokensDetails(Struct, kw_only=True):
    cached_tokens: int | None = None


class CompletionTokensDetails(Struct, kw_only=True):
    reasoning_tokens: int | None = None


class Usage(Struct, kw_only=True):
    """Token counts. The details keys are null in whole answers and left out of a stream's usage chunk."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptTokensDetails | None | UnsetType = None
    completion_tokens_details: CompletionTokensDetails | None | UnsetType = None


class GenerateChoice(Struct, kw_only=True):
    """A whole choice. `text` only in text mode, `message` only in derender mode; `logprobs` of the chat shape there."""

    index: int
    finish_reason: str | None = "stop"
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    routed_experts: Any = None
    sampling_mask: Any = None
    weight_versions: list[dict[str, Any]] | None = None
    logprobs: Any = None
    text: str | UnsetType = UNSET
    message: Any | UnsetType = UNSET


class GenerateResponse(Struct, kw_only=True):
    request_id: str | None = None
    model: str | None = None
    created: int | None = None
    usage: Usage | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    prompt_token_id_logprobs: Any = None
    prompt_token_ids: list[int] | None = None
    mm_placeholders: Any = None
    metrics: Any = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    output_mode: str = "tokens"
    choices: list[GenerateChoice]
    render_fingerprint: str | None | UnsetType = UNSET


class GenerateChunkChoice(Struct, kw_only=True):
    """One choice of one stream event: what is new since the last."""

    index: int
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    routed_experts: Any = None
    sampling_mask: Any = None
    weight_versions: list[dict[str, Any]] | None = None
    logprobs: Any = None
    text: str | UnsetType = UNSET
    delta: Any | UnsetType = UNSET


class GenerateChunk(Struct, kw_only=True):
    request_id: str | None = None
    usage: Usage | None = None
    output_mode: str = "tokens"
    choices: list[GenerateChunkChoice]
    prompt_token_ids: list[int] | UnsetType = UNSET
    mm_placeholders: Any | UnsetType = UNSET
    metrics: Any | UnsetType = UNSET
    prompt_logprobs: list[dict[str, Any] | None] | None | UnsetType = UNSET
    render_fingerprint: str | None | UnsetType = UNSET


# An answer in tokens mode, which is all that can be derendered: text that another server made cannot be made again. Its logprobs have one
# shape; knowing it, a decoder is spared a tree of dictionaries.


class TokensChoice(GenerateChoice, kw_only=True):
    logprobs: GenerateLogprobs | None = None


class TokensResponse(GenerateResponse, kw_only=True):
    output_mode: Literal["tokens"] = "tokens"  # an answer that says nothing is an old node's, in tokens
    choices: list[TokensChoice]  # type: ignore[assignment]


class TokensChunkChoice(GenerateChunkChoice, kw_only=True):
    logprobs: GenerateLogprobs | None = None


class TokensChunk(GenerateChunk, kw_only=True):
    output_mode: Literal["tokens"] = "tokens"
    choices: list[TokensChunkChoice]  # type: ignore[assignment]
