"""A served model: its names, and what its own files set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inference.errors import BadRequest, NotFound
from inference.model import load_model
from inference.parsing import check_parsers
from inference.resolve import BUILT_IN, resolve
from tests.inference.samples import FIXTURES, model


def folder(at: Path, **files: object) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (at / name).write_bytes((FIXTURES / "tokenizers" / "t2" / name).read_bytes())
    for name, content in files.items():
        (at / f"{name}.json").write_text(json.dumps(content))
    return at


def test_names() -> None:
    served = replace(model(), names=("a", "b"))
    assert [served.answering_to(name) for name in (None, "", "a", "b")] == ["a", "a", "a", "b"]
    with pytest.raises(NotFound) as refused:
        served.answering_to("c")
    assert refused.value.param == "model"


def test_a_models_own_files(tmp_path: Path) -> None:
    """What its makers recommend lies above the server's and below every tenant's."""
    config = {"vocab_size": 400, "max_position_embeddings": 64, "eos_token_id": 2}
    generation = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 9, "eos_token_id": [2, 7], "do_sample": True}
    served = load_model(folder(tmp_path, config=config, generation_config=generation), return_tokens_as_token_ids=True)
    assert (served.name, served.vocab_size, served.max_model_len, served.eos_token_ids) == (tmp_path.name, 400, 64, (2, 7))
    effective = resolve({}, served.layers, BUILT_IN)
    assert [effective[name] for name in ("temperature", "top_k", "max_tokens", "top_p")] == [0.6, 20, 9, 1.0]
    assert effective.sources["return_tokens_as_token_ids"] == "server"
    assert resolve({}, load_model(tmp_path).layers, BUILT_IN).sources["return_tokens_as_token_ids"] == "builtin"


def test_a_context_of_unknown_length_is_told_at_the_start(tmp_path: Path) -> None:
    at = folder(tmp_path)
    (at / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 1e30}))
    with pytest.raises(ValueError, match="max-model-len"):
        load_model(at)
    assert load_model(at, max_model_len=8).max_model_len == 8


def test_without_a_tokenizer_text_is_refused() -> None:
    served = load_model(FIXTURES / "tokenizers" / "t1", tokens_only=True)
    assert (served.vocab_size, served.eos_token_ids) == (266, (258,))
    with pytest.raises(BadRequest, match="tokens-only"):
        _ = served.tokenizer


@pytest.mark.parametrize(("to", "parser"), [("R", "nope"), ("R2", "deepseek_r1")])
def test_a_parser_that_will_not_do_is_told_at_the_start(to: str, parser: str) -> None:
    with pytest.raises(ValueError, match=parser):
        check_parsers(replace(model(to), reasoning_parser=parser))


def test_the_fingerprint_tells_servers_apart_that_read_a_text_differently() -> None:
    seen = {model("R").fingerprint, model("R2").fingerprint, model("RP").fingerprint, replace(model(), chat_template="x").fingerprint}
    assert len(seen) == 4
    assert model("R").fingerprint == model("R!").fingerprint
