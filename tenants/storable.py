"""Values of a request as a database can keep them: PostgreSQL has no NUL in a text, and no database has half a surrogate pair."""

from __future__ import annotations

import json
from typing import Any

MOST_CHARACTERS = 8_000
REPLACEMENT = "\ufffd"


def text(value: str, most: int) -> str:
    return value.replace("\0", REPLACEMENT).encode("utf-8", "replace").decode()[:most]


def tree(value: Any) -> Any:
    match value:
        case str():
            return text(value, MOST_CHARACTERS)
        case dict():
            return {text(str(key), MOST_CHARACTERS): tree(item) for key, item in value.items()}
        case list() | tuple():
            return [tree(item) for item in value]
    return value


def parameters(differing: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Effective parameters for a ledger row. Of very long ones only the sources are kept: the ledger is no log of contents."""
    kept: dict[str, Any] = tree(differing)
    if len(json.dumps(kept)) > MOST_CHARACTERS:
        return {name: {"source": shown["source"]} for name, shown in kept.items()}
    return kept
