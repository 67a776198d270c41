"""Prompts as token ids: told apart, tokenized, and cut or refused where they do not fit."""

from __future__ import annotations

from typing import Any

from inference.errors import BadRequest, SchemaError
from inference.model import ServedModel
from inference.protocol.openai import OpenAIRequest

MAX_PROMPTS = 1024  # each is a request of its own to a node


def split_prompts(prompt: str | list[Any] | None) -> list[str | list[int]]:
    """`prompt` is one text, one list of ids, or a list of either; each entry is a prompt of its own.

    Raises:
        BadRequest: there is none. SchemaError: entries of several kinds, or ids that are none.
    """
    if prompt is None or prompt == "":
        raise BadRequest("prompt must be given and must not be empty.", "prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise BadRequest("At least one prompt is needed.", "prompt")
    if isinstance(prompt[0], str | list) and len(prompt) > MAX_PROMPTS:
        raise BadRequest(f"prompt may hold at most {MAX_PROMPTS} prompts, got {len(prompt)}.", "prompt")
    if all(isinstance(entry, str) for entry in prompt):
        return prompt
    if all(isinstance(entry, list) for entry in prompt):
        return [checked_ids(entry, f"body.prompt.{i}") for i, entry in enumerate(prompt)]
    return [checked_ids(prompt, "body.prompt")]


def checked_ids(ids: list[Any], path: str) -> list[int]:
    for i, entry in enumerate(ids):
        if type(entry) is not int or entry < 0:
            raise SchemaError(f"{path}.{i}: Expected a token id (int >= 0), or prompts all of one kind", f"{path}.{i}")
    return ids


def tokenize(
    text: str, request: OpenAIRequest, model: ServedModel, *, add_special_tokens: bool
) -> tuple[list[int], list[list[int]] | None]:
    """Ids, and offsets where they are asked for. A text that cannot fit is refused before it costs anything."""
    tokenizer = model.tokenizer
    if request.truncate_prompt_tokens is None and len(text) > model.max_model_len * tokenizer.longest_piece:
        raise too_long(model)
    if not request.return_token_offsets:
        return fitting(tokenizer.encode(text, add_special_tokens=add_special_tokens), request, model), None
    ids, offsets = tokenizer.encode_with_offsets(text, add_special_tokens=add_special_tokens)
    kept = fitting(ids, request, model)
    return kept, offsets[len(ids) - len(kept) :]


def fitting(ids: list[int], request: OpenAIRequest, model: ServedModel) -> list[int]:
    """The ids, cut to their last ones where the request says so; there must be some, and room for one more."""
    room = model.max_model_len - 1
    keep = request.truncate_prompt_tokens
    if keep is not None:
        ids = ids[-(room if keep == -1 else keep) :]
    if not ids:
        raise BadRequest("No token_ids rendered")
    if len(ids) > room:
        raise too_long(model)
    return ids


def too_long(model: ServedModel) -> BadRequest:
    limit = model.max_model_len
    return BadRequest(f"The prompt is too long: the context holds max_model_len={limit} tokens, with the output.", "input_tokens")
