"""The conversion of GGUF files: what comes out is what the model's authors would have written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.tiny_model import write_gguf
from tests.world import ROOT

WANTED = ROOT / "tests" / "fixtures" / "smollm2"


def read(file: Path) -> dict[str, Any]:
    """A JSON file, less the version of whoever wrote it."""
    return {key: value for key, value in json.loads(file.read_text()).items() if key != "transformers_version"}


def convert(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    command = [sys.executable, "-m", "inference.engine.convert", str(source), str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"])
def test_the_default_model_comes_out_as_its_authors_wrote_it(model_folder: Path, name: str) -> None:
    assert read(model_folder / name) == read(WANTED / name)


def test_the_default_models_chat_template(model_folder: Path) -> None:
    assert (model_folder / "chat_template.jinja").read_text() == (WANTED / "chat_template.jinja").read_text()


def test_numbers_are_split_into_digits(model_folder: Path) -> None:
    """The trap: the plain conversion of the GGUF's tokenizer makes one token of 12."""
    tokens = Tokenizer.from_file(str(model_folder / "tokenizer.json")).encode("What is 12+34?").tokens
    assert [token for token in tokens if token.isdigit()] == ["1", "2", "3", "4"]


def test_a_gguf_file_becomes_a_model_folder(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", splitting="smollm")
    done = convert(tmp_path / "tiny.gguf", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    config = read(tmp_path / "out" / "config.json")
    assert config["rms_norm_eps"] == 1e-5
    assert config["hidden_size"] == 32
    assert "quantization_config" not in config
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("Hi").tokens == ["Hi"]


def test_a_tokenizer_beside_the_gguf_file_wins(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", splitting="nobody-knows")
    (tmp_path / "tokenizer.json").write_bytes((ROOT / "tests/fixtures/tokenizers/t1/tokenizer.json").read_bytes())
    done = convert(tmp_path / "tiny.gguf", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


def test_an_unknown_way_of_splitting_text_is_refused(tmp_path: Path) -> None:
    """It would become GPT-2's in silence, and the model would read other tokens than it was trained on."""
    write_gguf(tmp_path / "tiny.gguf", splitting="nobody-knows")
    done = convert(tmp_path / "tiny.gguf", tmp_path / "out")
    assert done.returncode == 1
    assert "'nobody-knows'" in done.stderr
    assert "Traceback" not in done.stderr
