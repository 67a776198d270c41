"""What sampling parameters may be, whatever the server (`check_ranges`), and what this server does not go along with (`check_limits`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inference.errors import BadRequest, SchemaError
from inference.model import MAX_SEQUENCES, ServedModel
from inference.protocol.generate import SamplingParams
from inference.values import given, stop_list

MAX_BIAS = 100.0
MAX_SALT = 128
MAX_STOPS = 256  # each is looked for at every token
MAX_BAD_WORDS = 1024  # each is tokenized twice, and looked at in every step
SALT_FORBIDDEN = "@/\\\0"
BAD_WORDS_IDS = "bad_words_token_ids"  # in extra_args, for nodes without a tokenizer
REASONING_END_IDS = "reasoning_end_token_ids"  # the same
LARGEST = 2**63 - 1  # what travels between processes is 64 bits wide
RANGES = {
    "presence_penalty": (-2, 2, "in [-2, 2]"),
    "frequency_penalty": (-2, 2, "in [-2, 2]"),
    "temperature": (0, 2, "in [0, 2]"),
    "min_p": (0, 1, "in [0, 1]"),
    "n": (1, LARGEST, "at least 1"),
    "max_tokens": (1, LARGEST, "at least 1"),
    "min_tokens": (0, LARGEST, "at least 0"),
    "top_k": (-1, LARGEST, "-1 or 0 (off), or at least 1"),
    "logprobs": (-1, LARGEST, "at least 0, or -1 for the whole vocabulary"),
    "prompt_logprobs": (-1, LARGEST, "at least 0, or -1 for the whole vocabulary"),
    "stream_interval": (1, LARGEST, "at least 1"),
}


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
    if len(stops) > MAX_STOPS:
        raise BadRequest(f"stop may hold at most {MAX_STOPS} strings, got {len(stops)}.", "stop")
    if "" in stops:
        raise BadRequest("stop cannot contain an empty string.", "stop")
    if stops and params.detokenize is False:
        raise BadRequest("stop needs text: it cannot be combined with detokenize=false.", "stop")
    check_bad_words_count(given(params.bad_words, []), MAX_BAD_WORDS)
    if params.bad_words is not None and "" in params.bad_words:
        raise BadRequest("bad_words cannot contain an empty string.", "bad_words")


def check_bad_words_count(words: Sequence[object], limit: int) -> None:
    if len(words) > limit:
        raise BadRequest(f"bad_words may hold at most {limit} entries, got {len(words)}.", "bad_words")


def check_prompt(prompt: Sequence[int], model: ServedModel) -> None:
    if len(prompt) >= model.max_model_len:
        raise BadRequest(
            f"The prompt has {len(prompt)} tokens, which leaves no room for output: max_model_len is {model.max_model_len}.", "token_ids"
        )
    refuse_outside_vocabulary(prompt, model, "token_ids")


def check_limits(params: SamplingParams, model: ServedModel) -> None:
    """What this server does not go along with."""
    n = given(params.n, 1)
    check_choices(n, 1, model)
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


def check_choices(n: int, prompts: int, model: ServedModel) -> None:
    """Before anything is made per choice: a few bytes of JSON could ask for more of them than there is memory."""
    if n > model.max_num_seqs:
        raise BadRequest(f"n must be at most the server's max_num_seqs ({model.max_num_seqs}), got {n}.", "n")
    if n * prompts > MAX_SEQUENCES:
        raise BadRequest(f"n={n} for each of {prompts} prompts makes {n * prompts} choices, more than {MAX_SEQUENCES}.", "n")


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
    """By name, never silently. Transfers of keys and values between servers come as extra_args; there are none here."""
    if params.prompt_logprob_token_ids is not None:
        raise BadRequest("prompt_logprob_token_ids is not supported by this server.", "prompt_logprob_token_ids")
    if params.structured_outputs is not None:
        for name in ("ignore_eos", "min_tokens"):
            if getattr(params, name):
                raise BadRequest(f"{name} cannot be combined with structured outputs: they end where they are complete.", name)
    known = {BAD_WORDS_IDS, REASONING_END_IDS, "script"} if scripted else {BAD_WORDS_IDS, REASONING_END_IDS}
    for name, value in given(params.extra_args, {}).items():
        if name not in known and value is not None:
            raise BadRequest(f"extra_args.{name} is not supported by this server.", f"extra_args.{name}")


def check_salt(salt: str | None) -> None:
    """It ends up in block hashes and in file names of some cache back ends: hence the characters."""
    if salt is not None and (not 1 <= len(salt) <= MAX_SALT or any(char in SALT_FORBIDDEN for char in salt)):
        raise BadRequest(f"cache_salt must be 1 to {MAX_SALT} characters, none of @, /, \\ and NUL.", "cache_salt")


def clamped_bias(bias: dict[str, float] | None) -> dict[str, float] | None:
    return None if bias is None else {key: min(max(value, -MAX_BIAS), MAX_BIAS) for key, value in bias.items()}


def bias_by_id(bias: dict[str, float] | None) -> dict[int, float] | None:
    wrong = [key for key in given(bias, {}) if not key.isdecimal()]
    if wrong:
        raise BadRequest(f"logit_bias has keys that are no token ids: {wrong[:5]}", "logit_bias")
    clamped = clamped_bias(bias)
    return None if clamped is None else {int(key): value for key, value in clamped.items()}


def as_count(value: int | bool | None) -> int | None:
    return None if value is None or value is False else int(value)
