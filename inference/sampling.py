"""Sampling parameters on both sides of the wire: `wire_params` writes them, `engine_sampling` reads them and fills every default.

The ranges are vLLM's (pipeline.md 4). They are checked when a request is rendered and again where it is generated, by the same
function, because a node also serves callers that rendered elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from inference.errors import BadRequest, SchemaError
from inference.limits import (
    BAD_WORDS_IDS,
    MAX_BAD_WORDS,
    REASONING_END_IDS,
    as_count,
    bias_by_id,
    check_bad_words_count,
    check_limits,
    check_prompt,
    check_ranges,
    check_salt,
    clamped_bias,
    refuse_outside_vocabulary,
    refuse_unsupported,
)
from inference.model import ServedModel
from inference.protocol.engine import Sampling
from inference.protocol.generate import GenerateRequest, SamplingParams
from inference.protocol.openai import OpenAIRequest
from inference.resolve import TEMPLATE_KWARGS, Effective
from inference.structure import constraint_of, structure_of
from inference.tokenizer import Tokenizer
from inference.values import given, stop_list

MIN_TEMPERATURE = 0.01  # below it, but not greedy, logits overflow
FINAL_ONLY, DELTAS = 2, 1  # vLLM's output_kind
ALWAYS_WRITTEN = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
AS_REQUESTED = ("stop_token_ids", "ignore_eos", "min_tokens", "logprob_token_ids", "allowed_token_ids", "bad_words")


def wire_params(
    request: OpenAIRequest, effective: Effective, *, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None
) -> SamplingParams:
    """What travels: the values that apply, spelled out wherever a node's own default could step in.

    Raises:
        BadRequest: a value is out of its range; `param` names the field.
    """
    stop = list(stop_list(effective["stop"]))
    params = SamplingParams(
        **{name: effective[name] for name in ALWAYS_WRITTEN},
        **{name: getattr(request, name) for name in AS_REQUESTED},
        n=unless(effective.values.get("n", 1), 1),
        seed=unless(effective["seed"], -1),
        max_tokens=max_tokens,
        stop=stop if stop else None,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        logit_bias=clamped_bias(request.logit_bias),
        skip_special_tokens=unless(effective["skip_special_tokens"], True),
        spaces_between_special_tokens=unless(effective["spaces_between_special_tokens"], True),
        include_stop_str_in_output=unless(effective["include_stop_str_in_output"], False),
        structured_outputs=structure_of(request),
        extra_args=extra_args(request),
        output_kind=DELTAS if request.stream else FINAL_ONLY,
    )
    check_ranges(params)
    return params


def for_node(generate: GenerateRequest, tokenizer: Tokenizer, *, reasoning_end_ids: Sequence[int] = ()) -> GenerateRequest:
    """What the platform posts to a node: ids in, ids out, as a stream. All text work is the platform's, so stop strings stay here.

    A node without a tokenizer is told in ids what it would have to look up.
    """
    params = generate.sampling_params
    extra = {**given(params.extra_args, {})}
    if params.bad_words:
        extra[BAD_WORDS_IDS] = bad_word_ids(params.bad_words, tokenizer)
    if reasoning_end_ids:
        extra[REASONING_END_IDS] = list(reasoning_end_ids)
    bare = replace(
        params,
        stop=None,
        include_stop_str_in_output=None,
        skip_special_tokens=None,
        spaces_between_special_tokens=None,
        extra_args=extra if extra else None,
        output_kind=DELTAS,
    )
    return replace(
        generate, sampling_params=bare, output_mode="tokens", stream=True, stream_options=None, parse_context=None, token_offsets=None,
        prefix_match=UNSET, prefix_first_difference=UNSET,
    )


def engine_sampling(
    params: SamplingParams,
    *,
    prompt_token_ids: Sequence[int],
    model: ServedModel,
    reasoning_end_ids: Sequence[int] = (),
    scripted: bool = False,
) -> Sampling:
    """The node's side: every default filled, every limit of this server applied.

    Args:
        reasoning_end_ids: where the output begins with reasoning: what ends it. No structure applies before.
        scripted: a script is what it is, whatever structure is asked for; the structure must be one all the same.

    Raises:
        BadRequest: a value cannot be honoured; `param` names the field.
    """
    refuse_unsupported(params, scripted)
    check_ranges(params)
    check_prompt(prompt_token_ids, model)
    check_limits(params, model)
    left = model.max_model_len - len(prompt_token_ids)
    max_tokens = left if params.max_tokens is None else min(params.max_tokens, left)
    eos, stops = ending_ids(params, model)
    constraint = constraint_of(params.structured_outputs, after=reasoning_end_ids)
    return Sampling(
        n=given(params.n, 1),
        temperature=raised(given(params.temperature, 1.0)),
        top_p=given(params.top_p, 1.0),
        top_k=max(given(params.top_k, 0), 0),
        min_p=given(params.min_p, 0.0),
        presence_penalty=given(params.presence_penalty, 0.0),
        frequency_penalty=given(params.frequency_penalty, 0.0),
        repetition_penalty=given(params.repetition_penalty, 1.0),
        seed=None if params.seed == -1 else params.seed,
        max_tokens=max_tokens,
        min_tokens=min(given(params.min_tokens, 0), max_tokens),
        eos_token_ids=eos,
        stop_token_ids=stops,
        ignore_eos=given(params.ignore_eos, False),
        logprobs=candidates(params),
        prompt_logprobs=as_count(params.prompt_logprobs),
        logprob_token_ids=optional_tuple(params.logprob_token_ids),
        logit_bias=bias_by_id(params.logit_bias),
        allowed_token_ids=optional_tuple(params.allowed_token_ids),
        bad_words_token_ids=forbidden_sequences(params, model),
        constraint=None if scripted else constraint,
        script=script_of(params),
    )


def check_generate_request(request: GenerateRequest, model: ServedModel) -> None:
    """What a generate request may not ask of this server, beside its sampling parameters.

    Raises:
        BadRequest, NotFound: `param` names the field.
    """
    model.answering_to(request.model)
    for name in ("features", "content_parts", "kv_transfer_params", "ec_transfer_params"):
        if getattr(request, name) is not None:
            raise BadRequest(f"{name} is not supported by this server.", name)
    check_salt(request.cache_salt)
    mode = given(request.output_mode, "tokens")
    if mode != "tokens" and model.loaded_tokenizer is None:
        raise BadRequest(f"output_mode {mode!r} needs text, and this server runs with --tokens-only.", "output_mode")
    if mode != "tokens" and request.sampling_params.detokenize is False:
        raise BadRequest(f"output_mode {mode!r} needs text: it cannot be combined with detokenize=false.", "output_mode")
    unknown = set(given(request.reasoning_parser_kwargs, {})) - {TEMPLATE_KWARGS}
    if unknown:
        raise SchemaError(f"reasoning_parser_kwargs has unknown keys: {sorted(unknown)[:5]}", "body.reasoning_parser_kwargs")


def ending_ids(params: SamplingParams, model: ServedModel) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(EOS ids, stop ids). Without a tokenizer EOS is a stop token like any other, and reported as one (pipeline.md 18.14)."""
    stops = tuple(given(params.stop_token_ids, ()))
    if model.loaded_tokenizer is not None:
        return model.eos_token_ids, stops
    return (), stops if params.ignore_eos else tuple(dict.fromkeys((*model.eos_token_ids, *stops)))


def candidates(params: SamplingParams) -> int | None:
    """How many candidates per token; with logprob_token_ids those stand in for the best ones, so a row is needed either way."""
    return 0 if params.logprob_token_ids is not None else as_count(params.logprobs)


def forbidden_sequences(params: SamplingParams, model: ServedModel) -> tuple[tuple[int, ...], ...]:
    """bad_words as ids: the caller's, else by this node's own tokenizer."""
    ids = given(params.extra_args, {}).get(BAD_WORDS_IDS)
    if ids is None and not params.bad_words:
        return ()
    if ids is None:
        if model.loaded_tokenizer is None:
            raise BadRequest(f"bad_words needs a tokenizer, and this server has none: send extra_args.{BAD_WORDS_IDS}.", "bad_words")
        ids = bad_word_ids(given(params.bad_words, []), model.loaded_tokenizer)
    if not is_id_lists(ids):
        raise BadRequest(f"extra_args.{BAD_WORDS_IDS} must be a list of non-empty lists of token ids.", f"extra_args.{BAD_WORDS_IDS}")
    check_bad_words_count(ids, 2 * MAX_BAD_WORDS)  # a word may make two sequences
    for sequence in ids:
        refuse_outside_vocabulary(sequence, model, "bad_words")
    return tuple(tuple(sequence) for sequence in ids)


def is_id_lists(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, list) and entry and all(isinstance(i, int) and not isinstance(i, bool) for i in entry) for entry in value
    )


def bad_word_ids(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each word as it begins a text, and as it follows a space where that makes another token of it."""
    sequences: list[list[int]] = []
    for word in words:
        bare = word.lstrip()
        plain = tokenizer.encode(bare, add_special_tokens=False)
        spaced = tokenizer.encode(f" {bare}", add_special_tokens=False)
        sequences.append(plain)
        if len(spaced) == len(plain) and spaced[:1] != plain[:1]:
            sequences.append(spaced)
    return [sequence for sequence in sequences if sequence]


def script_of(params: SamplingParams) -> Any:
    """The scripted engine's script: an object, or the same as JSON text."""
    script = given(params.extra_args, {}).get("script")
    if not isinstance(script, str):
        return script
    try:
        return json.loads(script)
    except ValueError as exc:
        raise BadRequest(f"extra_args.script is not JSON: {exc}", "extra_args.script") from None


def extra_args(request: OpenAIRequest) -> dict[str, Any] | None:
    """vllm_xargs and the transfer parameters travel together, as vLLM's own render writes them."""
    transfers = {"kv_transfer_params": request.kv_transfer_params, "ec_transfer_params": request.ec_transfer_params}
    extra = {**given(request.vllm_xargs, {}), **{name: value for name, value in transfers.items() if value is not None}}
    return extra if extra else None


def raised(temperature: float) -> float:
    return max(temperature, MIN_TEMPERATURE) if temperature > 0 else 0.0


def optional_tuple(ids: list[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)


def unless(value: Any, default: Any) -> Any:
    """None, which is not written, where the value is what a reader assumes anyway."""
    return None if value == default else value
