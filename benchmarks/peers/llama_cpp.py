"""llama.cpp's server, as the package xllamacpp builds it (its wheels use AVX2 at most)."""

from __future__ import annotations

from pathlib import Path

from harness.load import LLAMA_CPP
from harness.server import PEERS, Command
from peers import Contestant

VERSION = "2026.10.11549"
ENVIRONMENT = PEERS / "llama_cpp"
MODEL = ENVIRONMENT / "smollm2-f32.gguf"
READY = ENVIRONMENT / f"ready-{VERSION}"
SCRIPT = Path(__file__).with_name("programs") / "llama_cpp_server.py"


def installed() -> bool:
    return READY.exists()


def engine() -> Contestant:
    return Contestant(Command("llama.cpp F32", lambda port: (ENVIRONMENT / "bin" / "python", SCRIPT, MODEL, port)), LLAMA_CPP)
