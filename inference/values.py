"""Values that may be missing. None is the one way to say so; false, 0 and "" are values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def given(value: Any, default: Any) -> Any:
    """The value, or where there is none (None) the default. Not `or`: 0, false and "" are values."""
    return default if value is None else value


def stop_list(stop: str | Sequence[str] | None) -> Sequence[str]:
    return [] if stop is None else [stop] if isinstance(stop, str) else stop
