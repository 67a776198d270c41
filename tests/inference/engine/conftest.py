"""Random two-layer models, and engines on them in this process."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: two threads on a busy core wait for one another

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from inference.engine.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.load import load_engine

EOS = 2
VOCABULARY = 160


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Llama, two layers, three query heads on one key/value head, weights large enough that its answers vary."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=16, max_position_embeddings=1024, initializer_range=0.4, eos_token_id=EOS, bos_token_id=1, pad_token_id=0)
    folder = tmp_path_factory.mktemp("tiny")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def engine_on(tiny_model: Path) -> Callable[..., Engine]:
    """An engine on the tiny model with what the test asks for."""

    def build(**settings: object) -> Engine:
        engine, _ = load_engine(EngineConfig(**{"model": str(tiny_model), "kv_bytes": 64 << 20, "device": "cpu", **settings}))  # type: ignore[arg-type]
        return engine

    return build
