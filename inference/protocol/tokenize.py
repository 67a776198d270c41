"""The wire of `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from inference.protocol.generate import TokenId


class TokenizeRequest(Struct, kw_only=True):
    """Either `prompt` or `messages`; the latter go through the chat template."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class TokenizeResponse(Struct, kw_only=True):
    """`token_strs` are vocabulary strings, not texts."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None = None


class DetokenizeRequest(Struct, kw_only=True):
    model: str | None = None
    tokens: list[TokenId]


class DetokenizeResponse(Struct, kw_only=True):
    prompt: str
