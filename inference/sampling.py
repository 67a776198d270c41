"""Sampling parameters on both sides of the wire: `wire_params` writes them, `engine_sampling` reads them and fills every default.

The ranges are vLLM's (pipeline.md 4). They are checked when a request is rendered and again where it is generated, by the same
function, because a node also serves callers that rendered elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from inference.errors import BadRequest, SchemaError
from inference.model import ServedModel
from inference.protocol.engine import Sampling
from inference.protocol.generate import GenerateRequest, SamplingParams
from inference.protocol.openai import OpenAIRequest
from inference.resolve import TEMPLATE_KWARGS, Effective
from inference.tokenizer import Tokenizer

MIN_TEMPERATURE = 0.01  # below it, but not greedy, logits overflow
MAX_BIAS = 100.0
MAX_SALT = 128
SALT_FORBIDDEN = "@/\\\0"
BAD_WORDS_IDS = "bad_words_token_ids"  # in extra_args, for nodes without a tokenizer
FINAL_ONLY, DELTAS = 2, 1  # vLLM's output_kind
ALWAYS_WRITTEN = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
AS_REQUESTED = ("stop_token_ids", "ignore_eos", "min_tokens", "logprob_token_ids", "allowed_token_ids", "bad_words")
RANGES = {
    "presence_penalty": (-2, 2, "in [-2, 2]"),
    "frequency_penalty": (-2, 2, "in [-2, 2]"),
    "temperature": (0, 2, "in [0, 2]"),
    "min_p": (0, 1, "in [0, 1]"),
    "n": (1, float("inf"), "at least 1"),
    "max_tokens": (1, float("inf"), "at least 1"),
    "min_tokens": (0, float("inf"), "at least 0"),
    "top_k": (-1, float("inf"), "-1 or 0 (off), or at least 1"),
    "logprobs": (-1, float("inf"), "at least 0, or -1 for the whole vocabulary"),
    "prompt_logprobs": (-1, float("inf"), "at least 0, or -1 for the whole vocabulary"),
    "stream_interval": (1, float("inf"), "at least 1"),
}


def wire_params(
    request: OpenAIRequest, effective: Effective, *, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None
) -> SamplingParams:
    """What travels: the values that apply, spelled out wherever a node's own default could step in.

    Raises:
        BadRequest: a value is out of its range; `param` names the field.
    """
    stop = list(effective["stop"])
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
        extra_args=extra_args(request),
        output_kind=DELTAS if request.stream else FINAL_ONLY,
    )
    check_ranges(params)
    return params


def for_node(generate: GenerateRequest, tokenizer: Tokenizer) -> GenerateRequest:
    """What the platform posts to a node: ids in, ids out, as a stream. All text work is the platform's, so stop strings stay here."""
    params = generate.sampling_params
    extra = params.extra_args
    if params.bad_words:
        extra = {**(extra if extra is not None else {}), BAD_WORDS_IDS: bad_word_ids(params.bad_words, tokenizer)}
    bare = replace(
        params,
        stop=None,
        include_stop_str_in_output=None,
        skip_special_tokens=None,
        spaces_between_special_tokens=None,
        extra_args=extra,
        output_kind=DELTAS,
    )
    return replace(
        generate, sampling_params=bare, output_mode="tokens", stream=True, stream_options=None, parse_context=None, token_offsets=None
    )


def engine_sampling(
    params: SamplingParams, *, prompt_token_ids: Sequence[int], model: ServedModel, scripted: bool = False
) -> Sampling:
    """The node's side: every default filled, every limit of this server applied.

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


def check_salt(salt: str | None) -> None:
    """It ends up in block hashes and in file names of some cache back ends: hence the characters."""
    if salt is not None and (not 1 <= len(salt) <= MAX_SALT or any(char in SALT_FORBIDDEN for char in salt)):
        raise BadRequest(f"cache_salt must be 1 to {MAX_SALT} characters, none of @, /, \\ and NUL.", "cache_salt")


def check_ranges(params: SamplingParams) -> None:
    """What is wrong whatever the server: vLLM's own ranges."""
    for name, (low, high, text) in RANGES.items():
        value = getattr(params, name)
        if value is not None and not low <= value <= high:  # so put, NaN is refused too
            raise BadRequest(f"{name} must be {text}, got {value}.", name)
    if params.top_p is not None and not 0 < params.top_p <= 1:
        raise BadRequest(f"top_p must be in (0, 1], got {params.top_p}.", "top_p")
    if params.repetition_penalty is not None and not 0 < params.repetition_penalty < float("inf"):
        raise BadRequest(f"repetition_penalty must be greater than zero, got {params.repetition_penalty}.", "repetition_penalty")
    if params.seed is not None and not -(2**63) <= params.seed < 2**63:
        raise SchemaError("body.seed: Expected a signed 64-bit integer", "body.seed")
    if params.output_kind not in (None, 0, 1, 2):
        raise SchemaError("body.sampling_params.output_kind: Expected 0, 1 or 2", "body.sampling_params.output_kind")
    check_words(params)
    bias_by_id(params.logit_bias)
    if params.min_tokens is not None and params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise BadRequest(f"min_tokens must be at most max_tokens={params.max_tokens}, got {params.min_tokens}.", "min_tokens")


def check_words(params: SamplingParams) -> None:
    stops = stop_list(params.stop)
    if "" in stops:
        raise BadRequest("stop cannot contain an empty string.", "stop")
    if stops and params.detokenize is False:
        raise BadRequest("stop needs text: it cannot be combined with detokenize=false.", "stop")
    if params.bad_words is not None and "" in params.bad_words:
        raise BadRequest("bad_words cannot contain an empty string.", "bad_words")


def check_prompt(prompt: Sequence[int], model: ServedModel) -> None:
    if len(prompt) >= model.max_model_len:
        raise BadRequest(
            f"The prompt has {len(prompt)} tokens, which leaves no room for output: max_model_len is {model.max_model_len}.", "token_ids"
        )
    refuse_outside_vocabulary(prompt, model, "token_ids")


def check_limits(params: SamplingParams, model: ServedModel) -> None:
    """What this server does not go along with."""
    n = given(params.n, 1)
    if n > model.max_num_seqs:
        raise BadRequest(f"n must be at most the server's max_num_seqs ({model.max_num_seqs}), got {n}.", "n")
    if n > 1 and params.temperature == 0:
        raise BadRequest(f"n must be 1 when using greedy sampling, got {n}.", "n")
    if model.loaded_tokenizer is None and stop_list(params.stop):
        raise BadRequest("stop needs text, and this server runs with --tokens-only: use stop_token_ids.", "stop")
    if params.allowed_token_ids is not None and not params.allowed_token_ids:
        raise BadRequest("allowed_token_ids must not be empty.", "allowed_token_ids")
    for name in ("logprobs", "prompt_logprobs"):
        check_candidate_count(name, as_count(getattr(params, name)), model)
    for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
        refuse_outside_vocabulary(given(getattr(params, name), ()), model, name)
    refuse_outside_vocabulary(given(bias_by_id(params.logit_bias), {}), model, "logit_bias")


def check_candidate_count(name: str, count: int | None, model: ServedModel) -> None:
    """-1 asks for the whole vocabulary, and a max_logprobs of -1 allows it."""
    asked = model.vocab_size if count == -1 else count
    if asked is not None and model.max_logprobs != -1 and asked > model.max_logprobs:
        raise BadRequest(f"{name} asks for {asked} candidates, more than the server's max_logprobs of {model.max_logprobs}.", name)


def refuse_outside_vocabulary(ids: Iterable[int], model: ServedModel, param: str) -> None:
    outside = [i for i in ids if not 0 <= i < model.vocab_size]
    if outside:
        raise BadRequest(f"{param} holds token ids outside the vocabulary of {model.vocab_size}: {outside[:5]}", param)


def refuse_unsupported(params: SamplingParams, scripted: bool) -> None:
    """By name, never silently. Transfers of keys and values between servers come as extra_args; there are none here.

    A script is what it is whatever structure is asked for, so the scripted engine takes that.
    """
    for name in ("prompt_logprob_token_ids",) if scripted else ("structured_outputs", "prompt_logprob_token_ids"):
        if getattr(params, name) is not None:
            raise BadRequest(f"{name} is not supported by this server.", name)
    known = {BAD_WORDS_IDS, "script"} if scripted else {BAD_WORDS_IDS}
    for name, value in given(params.extra_args, {}).items():
        if name not in known and value is not None:
            raise BadRequest(f"extra_args.{name} is not supported by this server.", f"extra_args.{name}")


def ending_ids(params: SamplingParams, model: ServedModel) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(EOS ids, stop ids). Without a tokenizer EOS is a stop token like any other, and reported as one (pipeline.md 18.14)."""
    stops = tuple(given(params.stop_token_ids, ()))
    if model.loaded_tokenizer is not None:
        return model.eos_token_ids, stops
    return (), stops if params.ignore_eos else tuple(dict.fromkeys((*model.eos_token_ids, *stops)))


def candidates(params: SamplingParams) -> int | None:
    """How many candidates per token; with logprob_token_ids those stand in for the best ones, so a row is needed either way."""
    return 0 if params.logprob_token_ids is not None else as_count(params.logprobs)


def as_count(value: int | bool | None) -> int | None:
    return None if value is None or value is False else int(value)


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


def clamped_bias(bias: dict[str, float] | None) -> dict[str, float] | None:
    return None if bias is None else {key: min(max(value, -MAX_BIAS), MAX_BIAS) for key, value in bias.items()}


def bias_by_id(bias: dict[str, float] | None) -> dict[int, float] | None:
    wrong = [key for key in given(bias, {}) if not key.isdecimal()]
    if wrong:
        raise BadRequest(f"logit_bias has keys that are no token ids: {wrong[:5]}", "logit_bias")
    clamped = clamped_bias(bias)
    return None if clamped is None else {int(key): value for key, value in clamped.items()}


def stop_list(stop: str | list[str] | None) -> list[str]:
    return [] if stop is None else [stop] if isinstance(stop, str) else stop


def raised(temperature: float) -> float:
    return max(temperature, MIN_TEMPERATURE) if temperature > 0 else 0.0


def optional_tuple(ids: list[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)


def unless(value: Any, default: Any) -> Any:
    """None, which is not written, where the value is what a reader assumes anyway."""
    return None if value == default else value


def given(value: Any, default: Any) -> Any:
    """The value, or where there is none (None) the default. Not `or`: 0, false and "" are values."""
    return default if value is None else value
