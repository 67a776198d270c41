"""This project's own servers, started by its own commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.server import ROOT, Command

NAME = "tokenry"


def node(model: Path) -> Command:
    """Token ids in, token ids out; no tokenizer is loaded."""
    flags = ("--role", "generate", "--tokens-only", "--model", model, "--dtype", "float32", *served(model))
    return Command(NAME, lambda port: manage("serve", *flags, "--port", port))


def scripted_node(model: Path) -> Command:
    """A node without weights, for a platform that is to have one and never asks it for anything."""
    flags = ("--role", "generate", "--engine", "scripted", "--tokenizer", model, *served(model))
    return Command("a scripted node", lambda port: manage("serve", *flags, "--port", port))


def platform(model: Path, node_url: str, home: Path, key: str, *more: str) -> Command:
    """Where a flag of `more` is set here too, that of `more` counts."""
    flags = ("--role", "platform", "--node", node_url, "--tokenizer", model, *served(model), *more)
    env, headers = {"TOKENRY_HOME": str(home)}, {"Authorization": f"Bearer {key}"}
    return Command(NAME, lambda port: manage("serve", *flags, "--port", port), env, headers, ready_path="/readyz")


def tenant_key(home: Path) -> str:
    """The key of a new tenant in a new database in that folder."""
    for arguments in (("migrate", "--verbosity", "0"), ("create_tenant", "benchmark", "--json")):
        done = subprocess.run(manage(*arguments), env={**os.environ, "TOKENRY_HOME": str(home)}, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["key"])


def served(model: Path) -> Sequence[object]:
    return ("--served-model-name", model.name, "--max-model-len", 2048)


def manage(*arguments: object) -> list[str]:
    return [str(part) for part in (sys.executable, ROOT / "manage.py", *arguments)]
