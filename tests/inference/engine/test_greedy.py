"""Greedy tokens equal Hugging Face's generate: alone, batched, chunked, cold, from the prefix cache, after a preemption."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.inference.engine.running import prompt, request, run, run_one

NEW = 12
PROMPTS = {f"r{length}": prompt(length) for length in (1, 2, 5, 15, 16, 17, 31, 40, 64, 100, 127, 128, 129, 200, 300, 400)}


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> dict[str, list[int]]:
    return {name: generated(tiny_model, ids) for name, ids in PROMPTS.items()}


def generated(folder: Path, ids: list[int], new: int = NEW) -> list[int]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = model.generate(torch.tensor([ids]), max_new_tokens=new, min_new_tokens=new, do_sample=False, eos_token_id=VOCABULARY - 1)
    return [int(token) for token in tokens[0, len(ids) :]]


def greedy(name: str) -> dict[str, object]:
    return {"temperature": 0, "max_tokens": NEW, "min_tokens": NEW, "eos_token_ids": (VOCABULARY - 1,)}


@pytest.mark.parametrize("runner", ["fused", "generic"])
def test_alone(runner: str, engine_on: Callable[..., Engine], expected: dict[str, list[int]]) -> None:
    engine = engine_on(runner=runner)
    assert {name: run_one(engine, ids, **greedy(name)).tokens for name, ids in PROMPTS.items()} == expected


@pytest.mark.parametrize("runner", ["fused", "generic"])
@pytest.mark.parametrize("chunk", [7, 64, 4096])
def test_together_and_chunked(runner: str, chunk: int, engine_on: Callable[..., Engine], expected: dict[str, list[int]]) -> None:
    engine = engine_on(runner=runner, prefill_chunk=chunk, prefill_chunk_idle=chunk)
    answers = run(engine, *(request(name, ids, **greedy(name)) for name, ids in PROMPTS.items()))
    assert {name: answer.tokens for name, answer in answers.items()} == expected


@pytest.mark.parametrize("runner", ["fused", "generic"])
def test_without_our_own_kernels(
    runner: str, engine_on: Callable[..., Engine], expected: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.engine.native.native", lambda: None)
    engine = engine_on(runner=runner, prefill_chunk=64)
    answers = run(engine, *(request(name, ids, **greedy(name)) for name, ids in PROMPTS.items()))
    assert {name: answer.tokens for name, answer in answers.items()} == expected


def test_from_the_prefix_cache(engine_on: Callable[..., Engine], expected: dict[str, list[int]]) -> None:
    engine = engine_on()
    for _ in range(2):
        answers = run(engine, *(request(name, ids, **greedy(name)) for name, ids in PROMPTS.items()))
        assert {name: answer.tokens for name, answer in answers.items()} == expected
    assert {name: answer.cached_tokens for name, answer in answers.items()} == {
        name: (len(ids) - 1) // 16 * 16 for name, ids in PROMPTS.items()
    }


@pytest.mark.parametrize("chunk", [7, 4096])
@pytest.mark.parametrize("runner", ["fused", "generic"])
def test_in_pages(runner: str, chunk: int, engine_on: Callable[..., Engine], expected: dict[str, list[int]]) -> None:
    """CUDA's store, on this processor: its layout is the same, its kernels are not."""
    engine = engine_on(runner=runner, kv="pages", prefill_chunk=chunk, prefill_chunk_idle=chunk)
    for _ in range(2):
        answers = run(engine, *(request(name, ids, **greedy(name)) for name, ids in PROMPTS.items()))
        assert {name: answer.tokens for name, answer in answers.items()} == expected
    assert {name: answer.cached_tokens for name, answer in answers.items()} == {
        name: (len(ids) - 1) // 256 * 256 for name, ids in PROMPTS.items()
    }
    assert engine.scheduler.memory.usage() == 0


@pytest.mark.parametrize("kv", ["rows", "pages"])
def test_with_so_little_memory_that_rows_give_way(kv: Any, tiny_model: Path, expected: dict[str, list[int]]) -> None:
    token_bytes = 2 * 2 * 16 * 4
    kv_bytes = (600 if kv == "rows" else 3 * 256) * token_bytes
    engine, _ = load_engine(EngineConfig(model=str(tiny_model), kv_bytes=kv_bytes, kv=kv, device="cpu"))
    names = ["r127", "r64", "r100", "r31", "r128", "r17"] if kv == "rows" else ["r300", "r200", "r100"]
    answers = run(engine, *(request(name, PROMPTS[name], **greedy(name)) for name in names))
    assert {name: answer.tokens for name, answer in answers.items()} == {name: expected[name] for name in names}
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
    assert run_one(engine, PROMPTS["r40"], **greedy("r40")).tokens == generated(tmp_path, PROMPTS["r40"])
