"""Greedy tokens equal Hugging Face's generate: alone, batched, chunked, cold, from the prefix cache, after a preemption."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from inference.engine.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.load import load_engine
from tests.inference.engine.conftest import VOCABULARY
from tests.inference.engine.running import Answers, prompt, request, run, run_one

NEW = 12
LONGEST = 512
EDGES = (1, 2, 5, 15, 16, 17, 31, 40, 64, 100, 127, 128, 129, 200, 255, 256, 257, 300, 400, 511, LONGEST)  # of blocks, pages, rows
BETWEEN = random.Random(0).sample(sorted(set(range(LONGEST)) - {0, *EDGES}), 64 - len(EDGES))
PROMPTS = {f"r{length}": prompt(length) for length in (*EDGES, *BETWEEN)}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": NEW, "min_tokens": NEW, "eos_token_ids": (VOCABULARY - 1,)}

BuildEngine = Callable[..., Engine]
Tokens = dict[str, list[int]]


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> Tokens:
    return generated(tiny_model, PROMPTS)


def generated(folder: Path, prompts: Tokens) -> Tokens:
    """What the model's own `generate` gives each prompt alone."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    asked = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "eos_token_id": VOCABULARY - 1}
    return {name: model.generate(torch.tensor([ids]), **asked)[0, len(ids) :].tolist() for name, ids in prompts.items()}


def alone(engine: Engine) -> Tokens:
    return {name: run_one(engine, ids, **GREEDY).tokens for name, ids in PROMPTS.items()}


def together(engine: Engine, names: Iterable[str] = PROMPTS) -> dict[str, Answers]:
    return run(engine, *(request(name, PROMPTS[name], **GREEDY) for name in names))


def tokens(answers: dict[str, Answers]) -> Tokens:
    return {name: answer.tokens for name, answer in answers.items()}


def cached(answers: dict[str, Answers]) -> dict[str, int]:
    return {name: answer.cached_tokens for name, answer in answers.items()}


@pytest.mark.parametrize("runner", ["fused", "generic"])
def test_alone(runner: str, engine_on: BuildEngine, expected: Tokens) -> None:
    """Cold, then from the prefix cache."""
    engine = engine_on(runner=runner)
    assert alone(engine) == expected
    assert alone(engine) == expected


@pytest.mark.parametrize("runner", ["fused", "generic"])
@pytest.mark.parametrize("chunk", [7, 64, 4096])
def test_together_and_chunked(runner: str, chunk: int, engine_on: BuildEngine, expected: Tokens) -> None:
    engine = engine_on(runner=runner, prefill_chunk=chunk, prefill_chunk_idle=chunk)
    assert tokens(together(engine)) == expected


@pytest.mark.parametrize("runner", ["fused", "generic"])
def test_without_our_own_kernels(runner: str, engine_on: BuildEngine, expected: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.engine.native.native", lambda: None)
    assert tokens(together(engine_on(runner=runner, prefill_chunk=64))) == expected


def test_from_the_prefix_cache(engine_on: BuildEngine, expected: Tokens) -> None:
    engine = engine_on()
    cold, warm = together(engine), together(engine)
    assert tokens(cold) == tokens(warm) == expected
    assert cached(warm) == {name: (len(ids) - 1) // 16 * 16 for name, ids in PROMPTS.items()}


@pytest.mark.parametrize("chunk", [31, 4096])
@pytest.mark.parametrize("runner", ["fused", "generic"])
def test_in_pages(runner: str, chunk: int, engine_on: BuildEngine, expected: Tokens) -> None:
    """CUDA's store, on this processor: its layout is the same, its kernels are not."""
    engine = engine_on(runner=runner, kv="pages", prefill_chunk=chunk, prefill_chunk_idle=chunk)
    cold, warm = together(engine), together(engine)
    assert tokens(cold) == tokens(warm) == expected
    assert cached(warm) == {name: (len(ids) - 1) // 256 * 256 for name, ids in PROMPTS.items()}
    assert engine.scheduler.memory.usage() == 0


@pytest.mark.parametrize("kv", ["rows", "pages"])
def test_with_so_little_memory_that_rows_give_way(kv: Any, engine_on: BuildEngine, expected: Tokens) -> None:
    token_bytes = 2 * 2 * 16 * 4
    kv_bytes = (600 if kv == "rows" else 3 * 256) * token_bytes
    engine = engine_on(kv=kv, kv_bytes=kv_bytes, max_model_len=512)
    names = ["r127", "r64", "r100", "r31", "r128", "r17"] if kv == "rows" else ["r300", "r200", "r100"]
    assert tokens(together(engine, names)) == {name: expected[name] for name in names}
    assert engine.scheduler.preemptions > 0 or kv == "pages"
    assert engine.scheduler.memory.usage() == 0


SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 3, "head_dim": 8, "max_position_embeddings": 256, "initializer_range": 0.4, "eos_token_id": 2,
         "bos_token_id": 1, "pad_token_id": 0}  # fmt: skip
FAMILIES = {
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}, "fused"),
    "mistral_sliding": (MistralConfig, MistralForCausalLM, {"sliding_window": 32}, "refused"),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}, "fused"),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}, "fused"),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {"attn_logit_softcapping": 50.0}, "refused"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families(family: str, tmp_path: Path) -> None:
    """Fused where the family is known, refused by name where the attention would be another one."""
    config, model, extra, runner = FAMILIES[family]
    torch.manual_seed(1)
    model(config(**SHAPE, **extra)).save_pretrained(tmp_path)
    settings = EngineConfig(model=str(tmp_path), kv_bytes=8 << 20, device="cpu")
    if runner == "refused":
        with pytest.raises(NotImplementedError, match=r"softcap|slides"):
            load_engine(settings)
        return
    engine, info = load_engine(settings)
    assert info.runner == runner
    assert {"r40": run_one(engine, PROMPTS["r40"], **GREEDY).tokens} == generated(tmp_path, {"r40": PROMPTS["r40"]})
