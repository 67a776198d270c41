"""transformers in the project's own environment: `generate` for one request after another, and its continuous batching."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness.server import Command
from peers import Contestant

SCRIPT = Path(__file__).with_name("programs") / "transformers_server.py"
STEADY = 2  # requests after which one at a time has shown its pace


def engines(model: Path) -> list[Contestant]:
    return [
        Contestant(command("transformers generate", model, "generate"), at_most=STEADY, skips=("poisson",)),
        Contestant(command("transformers batching", model, "continuous")),
    ]


def command(name: str, model: Path, batching: str) -> Command:
    threads = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), "HF_HUB_OFFLINE": "1"}
    return Command(name, lambda port: (sys.executable, SCRIPT, model, port, batching), threads)
