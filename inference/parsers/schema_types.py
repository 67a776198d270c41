"""Values that a model writes as plain text, typed by the function's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

STRING = frozenset({"string"})
UNIONS = ("anyOf", "oneOf", "allOf")


def parameter_types(tools: Sequence[Mapping[str, Any]], function: str, key: str) -> frozenset[str]:
    """The JSON types that the schema of `function` allows for `key`; string where it says nothing.

    Tools come from the client as they are: whatever is not of the expected shape says nothing.
    """
    for tool in tools:
        declared = tool.get("function")
        if isinstance(declared, Mapping) and declared.get("name") == function:
            root = declared.get("parameters")
            properties = root.get("properties") if isinstance(root, Mapping) else None
            schema = properties.get(key) if isinstance(properties, Mapping) else None
            return frozenset(schema_types(schema, root)) or STRING
    return STRING


def schema_types(schema: Any, root: Any) -> set[str]:
    """Types by `type`, else by the values of `enum` and `const`, through `$ref` into the same schema, and through unions.

    Each part of the schema is looked at once, whatever its references make of it.
    """
    types: set[str] = set()
    seen: set[int] = set()
    pending = [schema]
    while pending:
        part = pending.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        declared = as_list(part.get("type"))
        types.update(name for name in declared if isinstance(name, str))
        if not declared:
            types.update(json_type(value) for value in as_list(part.get("enum")))
            types.update(json_type(part[word]) for word in ("const",) if word in part)
            pending.append(referred(part.get("$ref"), root))
            pending.extend(member for word in UNIONS for member in as_list(part.get(word)))
    return types


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def referred(reference: Any, root: Any) -> Any:
    """What a reference like `#/$defs/Unit` points at; None for any other, or a dangling one."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found = root
    for step in reference[2:].split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def escaped(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string. Escaping piece by piece gives the same as all at once."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def as_json(text: str, types: frozenset[str]) -> str:
    """The JSON for a written value: of one of `types` if it reads as one, else a string."""
    written = text.strip()
    if "null" in types and written in ("null", "None"):
        return "null"
    if "boolean" in types and written.lower() in ("true", "false"):
        return written.lower()
    if json_type_of(written) in types or (json_type_of(written) == "number" and "integer" in types):
        return written
    return f'"{escaped(text)}"'


def json_type_of(written: str) -> str | None:
    """The type of a number, an object or an array written as JSON; None for anything else."""
    if not written or written[0] not in "-0123456789{[":
        return None
    try:
        return json_type(json.loads(written, parse_constant=refuse))
    except (ValueError, RecursionError):
        return None


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
