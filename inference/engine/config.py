"""What an engine is started with. Frozen; illegal values fail here, naming the field; what can be computed is a property."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from inference import tokenizer_file
from inference.tokenizer_file import read_tokenizer, tokenizer_config

POSITIVE = ("max_model_len", "max_num_seqs", "max_queue", "max_queue_per_tenant", "prefill_chunk", "prefill_chunk_idle", "threads",
            "kv_bytes", "watchdog_s", "start_timeout_s")  # fmt: skip
CHOICES: dict[str, tuple[str, ...]] = {
    "engine": ("torch", "scripted"),
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "device": ("auto", "cpu", "cuda"),
    "runner": ("auto", "fused", "generic"),
    "kv": ("auto", "rows", "pages"),
}


class EngineConfig(Struct, frozen=True, kw_only=True):
    """`model` is a folder of configuration and weights, `tokenizer` one with tokenizer.json: the scripted engine's vocabulary."""

    engine: Literal["torch", "scripted"] = "torch"
    model: str | None = None
    tokenizer: str | None = None
    max_model_len: int | None = None  # None: the model's own
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    runner: Literal["auto", "fused", "generic"] = "auto"
    max_num_seqs: int = 128  # rows that decode together
    max_logprobs: int = 20  # -1: the whole vocabulary
    max_queue: int = 1024  # requests that may be in the engine beyond its rows
    max_queue_per_tenant: int = 512
    prefill_chunk: int = 256  # prompt tokens in a step while others decode: 0.2 to 0.6 s on two cores
    prefill_chunk_idle: int = 512  # while nobody decodes, or fewer decode than wait for their first token
    prefix_cache: bool = True
    kv: Literal["auto", "rows", "pages"] = "auto"  # pages on CUDA and where our own kernels are, else compact rows
    cuda_graphs: bool = True
    kv_bytes: int | None = None  # memory for keys and values; None: a share of what is free
    threads: int | None = None  # None: the cores that the process may use
    watchdog_s: float = 120.0  # silence with work outstanding that counts as stuck
    start_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, got {value!r}.")
        if self.max_logprobs < -1:
            raise ValueError(f"max_logprobs must be at least 0, or -1 for the whole vocabulary, got {self.max_logprobs}.")
        if self.engine == "torch" and not self.model:
            raise ValueError("model must name the model's folder.")
        if self.engine == "scripted" and not self.tokenizer_path:
            raise ValueError("tokenizer must name the tokenizer's folder.")

    @property
    def tokenizer_path(self) -> str | None:
        return self.tokenizer or self.model

    @property
    def capacity(self) -> int:
        """Requests that may be in the engine at once; one more is refused."""
        return self.max_num_seqs + self.max_queue

    @property
    def tenant_capacity(self) -> int:
        return self.max_num_seqs + self.max_queue_per_tenant


class EngineInfo(Struct, kw_only=True):
    """What a started engine says of itself."""

    vocab_size: int
    max_model_len: int
    eos_token_ids: list[int]
    generation_defaults: dict[str, Any]  # the model's generation_config.json: temperature, top_p, ...
    device: str
    dtype: str
    runner: str
    kv_tokens: int | None = None  # how many tokens' keys and values fit; None: not counted


def read_json(folder: str, name: str) -> dict[str, Any]:
    """The object in that file, or an empty one where there is no such file."""
    return tokenizer_file.read_json(Path(folder) / name)


def eos_ids(folder: str) -> list[int]:
    """End-of-sequence ids: generation_config.json, else config.json, else the tokenizer's eos_token."""
    for name in ("generation_config.json", "config.json"):
        declared = read_json(folder, name).get("eos_token_id")
        if declared is not None:
            return list(declared) if isinstance(declared, list) else [declared]
    token = tokenizer_config(Path(folder)).get("eos_token")
    content = token["content"] if isinstance(token, dict) else token
    return [tid for text, tid in vocabulary(folder).items() if text == content]


def vocabulary(folder: str) -> dict[str, int]:
    """Every token's text and id, added ones included."""
    tokenizer = read_tokenizer(Path(folder))
    vocab = tokenizer.get("model", {}).get("vocab", {})
    if isinstance(vocab, list):  # Unigram: [[piece, score], ...]
        vocab = {piece: tid for tid, (piece, _) in enumerate(vocab)}
    return dict(vocab) | {added["content"]: added["id"] for added in tokenizer.get("added_tokens", [])}


def generation_defaults(folder: str) -> dict[str, Any]:
    """What the model's authors recommend, by the names of our sampling parameters; only what they set and we know."""
    declared = read_json(folder, "generation_config.json")
    known = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}
    values = {name: value for name, value in declared.items() if name in known and value is not None}
    if declared.get("max_new_tokens") is not None:
        values["max_tokens"] = declared["max_new_tokens"]
    return values
