"""What a newcomer is shown of the demo tenant, kept in a file that only its owner can read: the database holds no key in clear."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

TENANT = "demo"
USERNAME = "admin"
FILE = "demo.json"


@dataclass(frozen=True)
class Demo:
    """What to print. A None is no longer known: it was changed, or its file is gone."""

    tenant: str = TENANT
    key: str | None = None
    username: str = USERNAME
    password: str | None = None


def read(folder: Path) -> Demo:
    try:
        stored = json.loads((folder / FILE).read_text())
        return Demo(key=stored["key"], password=stored["password"])
    except (OSError, ValueError, KeyError, TypeError):
        return Demo()


def write(folder: Path, demo: Demo) -> None:
    """Never readable by others, not even for a moment: the mode given on opening holds for a new file only."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    with os.fdopen(os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(asdict(demo), out)
