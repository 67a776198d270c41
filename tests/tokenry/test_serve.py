"""`manage.py serve` says in a sentence what is wrong, and ends."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.world import TOKENIZERS, command, environment

SCRIPTED = ("--role", "generate", "--engine", "scripted", "--tokenizer", str(TOKENIZERS / "t1"))


def serve(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in environment(home).items() if name != "TOKENRY_NODE_SECRET"}
    return subprocess.run(command("serve", *flags), env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("flags", "words"), [
    (("--port", "99999"), "--port"),
    (("--model", "no-such-model"), "pull_model no-such-model"),
    ((*SCRIPTED, "--reasoning-parser", "nope"), "known are deepseek_r1"),
    ((*SCRIPTED, "--chat-template", "/no/such/file"), "/no/such/file"),
    ((*SCRIPTED, "--host", "0.0.0.0"), "TOKENRY_NODE_SECRET"),
    (("--role", "platform"), "--node"),
], ids=lambda value: " ".join(value)[-30:] if isinstance(value, tuple) else "")  # fmt: skip
def test_a_wrong_setting_is_told(tmp_path: Path, flags, words):
    done = serve(tmp_path, *flags)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = serve(tmp_path, *SCRIPTED, "--port", str(taken.getsockname()[1]))
    assert done.returncode != 0
    assert "Is Tokenry running already?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_ends_the_node(tmp_path: Path, model_folder: Path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in model_folder.iterdir():
        if file.suffix != ".safetensors":
            (broken / file.name).write_bytes(file.read_bytes())
    (broken / "model.safetensors").write_bytes(b"nothing of the kind")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = serve(tmp_path, "--role", "generate", "--model", str(broken), "--port", str(port))
    assert done.returncode != 0
    assert "The engine cannot be started" in done.stderr
