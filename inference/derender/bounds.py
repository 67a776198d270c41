"""How much a /derender call may bring, checked before anything is decoded (pipeline.md 16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inference.errors import BadRequest, SchemaError
from inference.logprobs import entries_of
from inference.model import MAX_SEQUENCES, ServedModel
from inference.protocol.derender import StreamState
from inference.protocol.generate import GenerateChoice, GenerateChunk, GenerateResponse, TokenLogprobs


def check_response(response: GenerateResponse, model: ServedModel, path: str) -> None:
    """What can be said without looking at the choices one by one."""
    check_count("choices", len(response.choices), MAX_SEQUENCES, "VLLM_MAX_N_SEQUENCES", f"{path}.choices")
    check_length("prompt_logprobs", response.prompt_logprobs, model, f"{path}.prompt_logprobs")
    check_length("prompt_token_ids", response.prompt_token_ids, model, f"{path}.prompt_token_ids")


def choice_ids(choice: GenerateChoice, model: ServedModel, path: str) -> list[int]:
    """A whole choice's ids: there must be some, and none below 0."""
    if not choice.token_ids:
        raise BadRequest(f"choice {choice.index} has empty or null token_ids.", f"{path}.token_ids")
    if min(choice.token_ids) < 0:
        raise SchemaError(f"{path}.token_ids: Expected ids >= 0", f"{path}.token_ids")
    check_length("token_ids", choice.token_ids, model, f"{path}.token_ids")
    return choice.token_ids


def checked_entries(logprobs: Any, model: ServedModel, path: str) -> list[TokenLogprobs] | None:
    """The entries of tokens-mode logprobs. A row may have one candidate more than max_logprobs: the sampled token, from further down."""
    entries = entries_of(logprobs, path)
    if entries is None:
        return None
    check_length("logprobs.content", entries, model, path)
    if model.max_logprobs != -1:
        for i, entry in enumerate(entries):
            if len(entry.top_logprobs) > model.max_logprobs + 1:
                raise BadRequest(
                    f"top_logprobs count ({len(entry.top_logprobs)}) exceeds max_logprobs ({model.max_logprobs}).",
                    f"{path}.content.{i}.top_logprobs",
                )
    return entries


def check_chunk(chunk: GenerateChunk) -> None:
    if len(chunk.choices) > 1:
        raise BadRequest(f"A call takes at most one choice, got {len(chunk.choices)}.", "generate_chunk.choices")


def check_state(state: StreamState) -> None:
    if sum(state.output_chunk_lens) != len(state.output_token_ids):
        raise SchemaError(
            "body.stream_state: output_chunk_lens must sum to the number of output_token_ids", "body.stream_state.output_chunk_lens"
        )


def check_history(prompt: int, history: int, delta: int, model: ServedModel) -> None:
    """A chat's stream may replay all of it."""
    if prompt + history + delta > model.max_model_len:
        raise BadRequest(
            f"prompt_token_ids ({prompt}), output_token_ids ({history}) and this chunk's ids ({delta}) together exceed"
            f" max_model_len ({model.max_model_len}).",
            "generate_chunk",
        )


def check_length(name: str, values: Sequence[Any] | None, model: ServedModel, path: str) -> None:
    if values is not None and len(values) > model.max_model_len:
        raise BadRequest(f"{name} length ({len(values)}) exceeds max_model_len ({model.max_model_len}).", path)


def check_count(name: str, count: int, limit: int, limit_name: str, path: str) -> None:
    if count > limit:
        raise BadRequest(f"{name} count ({count}) exceeds {limit_name} ({limit}).", path)
