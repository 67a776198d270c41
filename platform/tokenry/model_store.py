"""Where models live on disk: TOKENRY_HOME/models/NAME, one folder each. No Django here, so that a node's process can read it too."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inference.tokenizer_file import FILES, tokenizer_file

PROJECT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class ModelMissing(LookupError):
    """No such model here; the text says which command gets it."""


def home() -> Path:
    """TOKENRY_HOME: the models and the embedded database."""
    return Path(os.environ.get("TOKENRY_HOME") or PROJECT / ".tokenry").resolve()


def model_folder(name: str) -> Path:
    """Where the model of this name is, or would be; `owner/name` of a hub is one folder."""
    return home() / "models" / name.replace("/", "--")


def is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def find_model(name_or_path: str) -> Path:
    """The folder of a model: a path to one (or to a tokenizer alone), or the name of one that was pulled.

    Raises:
        ModelMissing: neither is there.
    """
    path = Path(name_or_path).expanduser()
    if is_model(path) or tokenizer_file(path) is not None:
        return path.resolve()
    if NAME.fullmatch(name_or_path) and is_model(model_folder(name_or_path)):
        return model_folder(name_or_path)
    if path.is_dir():
        raise ModelMissing(f"The folder {path} is no model: it has neither config.json nor a tokenizer ({', '.join(FILES)}).")
    raise ModelMissing(
        f"There is no model {name_or_path!r}, neither as a folder nor in {home() / 'models'}. "
        f"Get it with: python manage.py pull_model {name_or_path}"
    )


@contextmanager
def locked(target: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Only one process fills `target` at a time; another one waits for it, after `on_wait`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """An empty folder that becomes `target` at once when the block ends well; its parent is a scratch area that vanishes.

    Whatever interrupts it, `target` is whole or absent. Must be `locked`: what a killed process left behind is swept away first.
    """
    prefix = f".{target.name}.pulling-"
    for leftover in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as workspace:
        folder = Path(workspace) / "model"
        folder.mkdir()
        yield folder
        folder.rename(target)
