"""A model as it is served: its names, limits, tokenizer, template and parsers, and the defaults that its own files and the server set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from inference.errors import BadRequest, ModelNotFound
from inference.resolve import TEMPLATE_KWARGS, Layer
from inference.tokenizer import Tokenizer
from inference.tokenizer_file import read_json

MAX_SEQUENCES = 16384  # choices per response, and responses per derender call, that are looked at (VLLM_MAX_N_SEQUENCES)
GENERATION_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True)
class ServedModel:
    """`names[0]` is canonical, the others are aliases. A tokens-only node has no tokenizer; whoever needs one there refuses the request."""

    names: tuple[str, ...]
    loaded_tokenizer: Tokenizer | None
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_model_len: int
    max_logprobs: int = 20
    max_num_seqs: int = 256
    chat_template: str | None = None
    trust_request_chat_template: bool = False
    layers: tuple[Layer, ...] = ()
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    enable_auto_tool_choice: bool = False

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def tokenizer(self) -> Tokenizer:
        if self.loaded_tokenizer is None:
            raise BadRequest("This server has no tokenizer (it runs with --tokens-only): it takes and gives token ids.")
        return self.loaded_tokenizer

    @property
    def has_parser(self) -> bool:
        return self.tool_call_parser is not None or self.reasoning_parser is not None

    def answering_to(self, asked: str | None) -> str:
        """The name that an answer carries. Null, absent and "" all mean the served model.

        Raises:
            ModelNotFound: another model is asked for.
        """
        if asked is None or asked == "":
            return self.name
        if asked not in self.names:
            raise ModelNotFound(asked)
        return asked

    @cached_property
    def fingerprint(self) -> str:
        """Two servers with the same one render and read a text alike: tokenizer, template and parsers."""
        tokenizer = None if self.loaded_tokenizer is None else self.loaded_tokenizer.fingerprint
        parts = (tokenizer, self.chat_template, self.tool_call_parser, self.reasoning_parser)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def load_model(
    folder: Path,
    *,
    names: tuple[str, ...] = (),
    tokenizer: Path | None = None,
    tokens_only: bool = False,
    max_model_len: int | None = None,
    max_logprobs: int = 20,
    max_num_seqs: int = 256,
    chat_template: str | None = None,
    default_chat_template_kwargs: dict[str, Any] | None = None,
    trust_request_chat_template: bool = False,
    return_tokens_as_token_ids: bool | None = None,
    tool_call_parser: str | None = None,
    reasoning_parser: str | None = None,
    enable_auto_tool_choice: bool = False,
) -> ServedModel:
    """What a model's folder says of itself (config.json, generation_config.json, the tokenizer), and what the server was started with.

    Raises:
        FileNotFoundError: no tokenizer where one is needed.
        ValueError: nothing says how long a context may be.
    """
    config = read_json(folder / "config.json")
    generation = read_json(folder / "generation_config.json")
    loaded = Tokenizer.load(folder if tokenizer is None else tokenizer)
    return ServedModel(
        names=names if names else (folder.name,),
        loaded_tokenizer=None if tokens_only else loaded,
        vocab_size=config.get("text_config", config).get("vocab_size", loaded.vocab_size),
        eos_token_ids=eos_token_ids(config, generation, loaded),
        max_model_len=context_length(config, loaded) if max_model_len is None else max_model_len,
        max_logprobs=max_logprobs,
        max_num_seqs=max_num_seqs,
        chat_template=chat_template,
        trust_request_chat_template=trust_request_chat_template,
        layers=(model_layer(generation), server_layer(return_tokens_as_token_ids, default_chat_template_kwargs)),
        tool_call_parser=tool_call_parser,
        reasoning_parser=reasoning_parser,
        enable_auto_tool_choice=enable_auto_tool_choice,
    )


def model_layer(generation: dict[str, Any]) -> Layer:
    """The sampling values that a model's makers recommend."""
    values = {name: generation[name] for name in GENERATION_DEFAULTS if generation.get(name) is not None}
    if generation.get("max_new_tokens") is not None:
        values["max_tokens"] = generation["max_new_tokens"]
    return Layer("model", values)


def server_layer(return_tokens_as_token_ids: bool | None, template_kwargs: dict[str, Any] | None) -> Layer:
    values = {"return_tokens_as_token_ids": return_tokens_as_token_ids, TEMPLATE_KWARGS: template_kwargs}
    return Layer("server", {name: value for name, value in values.items() if value is not None})


def eos_token_ids(config: dict[str, Any], generation: dict[str, Any], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokenizer's own first; chat models often list another (end of turn) in generation_config.json."""
    listed = generation.get("eos_token_id", config.get("eos_token_id"))
    ids = [tokenizer.eos_token_id, *(listed if isinstance(listed, list) else [listed])]
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def context_length(config: dict[str, Any], tokenizer: Tokenizer) -> int:
    """A tokenizer without a limit of its own writes a huge number for it; that says nothing."""
    for length in (config.get("max_position_embeddings"), tokenizer.config.get("model_max_length")):
        if isinstance(length, int) and 0 < length < 10**9:
            return length
    raise ValueError("Neither config.json nor tokenizer_config.json says how long the context may be: pass --max-model-len.")
