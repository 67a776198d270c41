"""Pulling a model: fetch its files, convert what the engine cannot read as it is, and put a whole folder into place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from inference.tokenizer_file import FILES, tokenizer_file
from tokenry.model_sources import PullError, link_or_copy, source_of
from tokenry.model_store import PROJECT, is_model, locked, model_folder, staging

Say = Callable[[str], None]
KEPT = ("*.json", "*.jinja", "*.safetensors", "tokenizer.model", "merges.txt", "vocab.txt")
SLOW_TOKENIZERS = ("tokenizer.model", "vocab.json", "vocab.txt")


def pull(name_or_path: str, target: Path | None, say: Say) -> Path:
    """The model's folder, fetched and converted unless it is there already.

    Raises:
        PullError: it cannot be had, or is of no kind that the engine runs.
    """
    source = source_of(name_or_path)
    target = model_folder(source.name) if target is None else target.expanduser().resolve()
    with locked(target, lambda: say(f"Another process is pulling {source.name}; waiting for it.")):
        if is_model(target):
            say(f"The model {source.name} is already there: {target}")
            return target
        if target.is_file() or (target.is_dir() and any(target.iterdir())):
            raise PullError(f"{target} exists and is no model. Remove it, or name another folder with --to.")
        say(f"Fetching {source.name}")
        with staging(target) as folder:
            assemble(source.fetch(folder.parent), folder, say)
    say(f"The model {source.name} is ready: {target}")
    return target


def assemble(files: Path, folder: Path, say: Say) -> None:
    """Fill `folder` with what the engine and the tokenizer read: config.json, safetensors, tokenizer.json and their companions."""
    gguf = gguf_of(files)
    if gguf is not None:
        say(f"Converting {gguf.name} to safetensors (half a minute for a small model)")
        convert(gguf, folder)
    else:
        check(files)
        for file in sorted({file for pattern in KEPT for file in files.glob(pattern)}):
            link_or_copy(file, folder / file.name)
        if tokenizer_file(folder) is None:
            say("Converting the tokenizer")
            convert(files, folder)
    check(folder)


def gguf_of(files: Path) -> Path | None:
    """The GGUF file to convert, or None where there are safetensors."""
    if files.is_file():
        if files.suffix != ".gguf":
            raise PullError(f"{files} is a file, and no GGUF file. Give the model's folder.")
        return files
    found = sorted(files.glob("*.gguf"))
    if not found or any(files.glob("*.safetensors")):
        return None
    if len(found) > 1:
        raise PullError(f"{files} holds {len(found)} GGUF files ({', '.join(f.name for f in found)}). Give the path of one of them.")
    return found[0]


def check(folder: Path) -> None:
    """Refuse at once what would fail when it is served."""
    config = read_json(folder / "config.json")
    if "model_type" not in config:
        raise PullError(f"{folder / 'config.json'} names no model_type, so nothing can load this model.")
    weights = {file.name for file in folder.glob("*.safetensors")}
    if not weights:
        raise PullError(f"{folder} holds no *.safetensors (nor a GGUF file). Convert the weights first: other formats can run code.")
    index = folder / "model.safetensors.index.json"
    if index.is_file() and (lacking := sorted(set(read_json(index).get("weight_map", {}).values()) - weights)):
        raise PullError(f"{folder} is incomplete: {index.name} names {', '.join(lacking)}, and they are not there.")
    if not any((folder / name).is_file() for name in (*FILES, *SLOW_TOKENIZERS)):
        raise PullError(f"{folder} holds no tokenizer ({', '.join((*FILES, *SLOW_TOKENIZERS))}).")


def read_json(file: Path) -> dict[str, object]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise PullError(f"{file.parent} holds no {file.name}, so it is no model folder.") from None
    except ValueError as exc:
        raise PullError(f"{file} is not valid JSON: {exc}.") from None
    if not isinstance(value, dict):
        raise PullError(f"{file} should hold a JSON object.")
    return value


def convert(source: Path, folder: Path) -> None:
    """In a process of its own: torch and transformers belong to the engine and never enter this one."""
    command = [sys.executable, "-m", "inference.engine.convert", str(source), str(folder)]
    bars = "" if sys.stderr.isatty() else "1"
    if subprocess.run(command, cwd=PROJECT, env={**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": bars}).returncode != 0:
        raise PullError(f"{source.name} could not be converted; the lines above say why.")
