"""Nested objects as leaves with dotted names. Objects merge leaf by leaf; lists are leaves, and a null leaf says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def overlay(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Lay `over` on `base` in place, leaf by leaf; a null leaf inherits. `base` never shares an object with a layer."""
    for key, value in over.items():
        if isinstance(value, Mapping):
            inner = base[key] if isinstance(base.get(key), dict) else {}
            overlay(inner, value)
            if inner or not value:  # an object of nulls alone says nothing
                base[key] = inner
        elif value is not None:
            base[key] = value


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every leaf that is set; an empty object is a leaf of its own."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{path}.")
        elif value is not None:
            yield path, value


def nested(name: str, value: Any) -> dict[str, Any]:
    """("a.b", 1) as {"a": {"b": 1}}."""
    key, dot, rest = name.partition(".")
    return {key: nested(rest, value) if dot else value}


def leaf(tree: Any, name: str) -> Any:
    """What is at a dotted name, None where nothing is."""
    for key in name.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def below(name: str, other: str) -> bool:
    """Whether a dotted name is the other or lies under it."""
    return f"{name}.".startswith(f"{other}.")


def overlap(name: str, other: str) -> bool:
    """Whether setting one touches the other: one field, or one lies within the other."""
    return below(name, other) or below(other, name)
