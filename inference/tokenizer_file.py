"""What a folder says of its tokenizer: in tokenizer.json, or where there is none in Mistral's tekken.json, which is read as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inference import tekken

FILES = ("tokenizer.json", "tekken.json")


def tokenizer_file(folder: Path) -> Path | None:
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def read_tokenizer(folder: Path) -> dict[str, Any]:
    """tokenizer.json's object, empty where there is neither file. One made of tekken.json takes a second each time: a model's folder is not
    ours to keep it in.

    Raises:
        ValueError: tekken.json cannot be read.
    """
    file = tokenizer_file(folder)
    if file is None:
        return {}
    return tekken.tokenizer_json(read_json(file)) if is_tekken(file) else read_json(file)


def tokenizer_content(folder: Path) -> bytes:
    """The same in bytes: those of tokenizer.json itself, where it is there.

    Raises:
        FileNotFoundError: the folder holds neither file.
        ValueError: tekken.json cannot be read.
    """
    file = tokenizer_file(folder)
    if file is None:
        raise FileNotFoundError(f"{folder} holds no {' or '.join(FILES)}")
    return json.dumps(read_tokenizer(folder)).encode() if is_tekken(file) else file.read_bytes()


def tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json's, over special_tokens_map.json, over the names that the tokens of a tekken.json have."""
    file = tokenizer_file(folder)
    names = tekken.NAMES if file is not None and is_tekken(file) else {}
    return {**names, **read_json(folder / "special_tokens_map.json"), **read_json(folder / "tokenizer_config.json")}


def is_tekken(file: Path) -> bool:
    return file.name == "tekken.json"


def read_json(file: Path) -> dict[str, Any]:
    """The object in that file, or an empty one where there is no such file."""
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return loaded
