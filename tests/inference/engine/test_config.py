"""What an engine may be started with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inference.engine.config import EngineConfig, eos_ids, generation_defaults, vocabulary
from tests.world import TOKENIZERS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("engine", "other"), ("dtype", "int8"), ("device", "tpu"), ("runner", "magic"), ("max_num_seqs", 0), ("max_model_len", -1),
        ("max_logprobs", -2), ("max_queue", 0), ("prefill_chunk", 0), ("kv_bytes", 0), ("threads", 0), ("watchdog_s", 0.0), ("model", None),
    ],
)  # fmt: skip
def test_an_illegal_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        EngineConfig(**{"model": "somewhere", field: value})


def test_the_scripted_engine_needs_a_tokenizer() -> None:
    with pytest.raises(ValueError, match="tokenizer"):
        EngineConfig(engine="scripted")


@pytest.mark.parametrize(("tokenizer", "size", "eos"), [("t1", 266, [258]), ("t2", 303, [2])])
def test_what_a_tokenizer_folder_says(tokenizer: str, size: int, eos: list[int]) -> None:
    folder = str(TOKENIZERS / tokenizer)
    assert max(vocabulary(folder).values()) + 1 == size
    assert eos_ids(folder) == eos


def test_generation_config_comes_first(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 1}))
    assert eos_ids(str(tmp_path)) == [1]
    declared = {"eos_token_id": [7, 8], "temperature": 0.6, "top_k": None, "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(declared))
    assert eos_ids(str(tmp_path)) == [7, 8]
    assert generation_defaults(str(tmp_path)) == {"temperature": 0.6}
