"""Strict JSON in, JSON out. A string for a boolean is an error that names the field: a lax reader blurs the three states of a flag."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from inference.errors import SchemaError

T = TypeVar("T")
MAX_ECHO = 200

encode = msgspec.json.encode


@cache
def decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    """One decoder per shape: building one compiles the shape."""
    return msgspec.json.Decoder(shape, strict=True)


def decode(shape: type[T], body: bytes, *, root: str = "body") -> T:
    """The body as `shape`.

    Raises:
        SchemaError: not JSON, not of the shape, or a value out of its declared range; `param` is the dotted path from `root`.
    """
    if not body:
        raise SchemaError("The request body is empty; send a JSON object.", root)
    try:
        decoded: T = decoder(cast(Any, shape)).decode(body)
    except msgspec.ValidationError as exc:
        raise schema_error(exc, root) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SchemaError(f"The request body is not valid JSON: {exc}", f"{root}.{fault_offset(body)}") from None
    return decoded


def convert(shape: type[T], value: Any, *, root: str = "body") -> T:
    """Like `decode`, for a value that is parsed already."""
    try:
        return msgspec.convert(value, shape, strict=True)
    except msgspec.ValidationError as exc:
        raise schema_error(exc, root) from None


def schema_error(exc: msgspec.ValidationError, root: str) -> SchemaError:
    """msgspec writes `Expected int, got str - at $.a[1].b`; the contract's path reads `body.a.1.b`."""
    text, _, where = str(exc).partition(" - at `")
    path = re.sub(r"\[(\d+)\]", r".\1", where.rstrip("`").removeprefix("$").replace("[...]", ""))
    missing = re.search(r"missing required field `(.+?)`", text)
    param = root + path + (f".{missing[1]}" if missing else "")
    return SchemaError(f"{param}: {text}"[: MAX_ECHO * 2], param)


def fault_offset(body: bytes) -> int:
    """Where the standard library's parser, slower but more talkative, stops reading; for the error message only."""
    try:
        json.loads(body[:100_000])
    except json.JSONDecodeError as exc:
        return exc.pos
    except (UnicodeDecodeError, RecursionError, ValueError):
        pass
    return 0
