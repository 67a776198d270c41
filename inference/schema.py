"""JSON schemas, as far as a grammar can hold a text to them.

The grammars' library passes over what it does not know, so a schema is looked through here first, and what would be accepted and then
ignored is refused by its place. Annotations (title, description, default, formats that nobody defines, unknown keys) bind nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from inference.errors import BadRequest

DEEPEST = 32  # levels of a schema
LONGEST = 128 * 1024  # characters of a schema, or of any other structure
NOT_HONOURED = (
    "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains", "minContains", "maxContains",
    "additionalItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
FORMATS_NOT_HONOURED = ("regex", "idn-email", "idn-hostname", "iri", "iri-reference")
STRING = ("minLength", "maxLength", "pattern", "format")
NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
ARRAY = ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems")
OBJECT = (
    "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
    "unevaluatedProperties",
)  # fmt: skip
BY_TYPE = {"string": STRING, "number": NUMBER, "integer": NUMBER, "array": ARRAY, "object": OBJECT}
ALONE = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")  # beside these, nothing else is looked at
BINDING = frozenset((*STRING, *NUMBER, *ARRAY, *OBJECT, *ALONE, "type"))
SCHEMAS = ("items", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
MAPS = ("properties", "patternProperties", "$defs", "definitions")
PYTHON: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None), "array": list, "object": dict
}  # fmt: skip


def checked_schema(schema: Any, place: str, param: str) -> Any:
    """The schema as the engine takes it: what it leaves open and the library would close is spelled out.

    Args:
        place: of the schema in the request, for people; `param` is the field at fault.

    Raises:
        BadRequest: it asks for what cannot be honoured.
    """
    return Reading(schema, param).schema(schema, place, 0)


class Reading:
    """One schema, walked from its root."""

    def __init__(self, root: Any, param: str) -> None:
        self.root = root
        self.param = param

    def schema(self, schema: Any, place: str, depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise self.refusal(place, "must be an object or a boolean")
        if depth > DEEPEST:
            raise self.refusal(place, f"is more than {DEEPEST} levels deep")
        self.check_keys(schema, place)
        self.check_reference(schema, place)
        self.check_values(schema, place)
        self.check_string(schema, place)
        self.check_object(schema, place)
        self.check_union(schema, place)
        return self.opened({key: self.value(key, value, f"{place}.{key}", depth + 1) for key, value in schema.items()})

    def value(self, key: str, value: Any, place: str, depth: int) -> Any:
        """A key's value, with the schemas in it read."""
        if key in SCHEMAS:
            return self.schema(value, place, depth)
        if key in LISTS:
            if not isinstance(value, list) or not value:
                raise self.refusal(place, "must be a list of schemas, and not empty")
            return [self.schema(part, f"{place}.{i}", depth) for i, part in enumerate(value)]
        if key in MAPS:
            if not isinstance(value, dict):
                raise self.refusal(place, "must be an object of schemas")
            return {name: self.schema(part, f"{place}.{name}", depth) for name, part in value.items()}
        return value

    def check_keys(self, schema: Mapping[str, Any], place: str) -> None:
        for key in NOT_HONOURED:
            if key in schema:
                raise self.refusal(f"{place}.{key}", "is not supported")
        if schema.get("uniqueItems") not in (None, False):
            raise self.refusal(f"{place}.uniqueItems", "is not supported")
        if schema.get("multipleOf") is not None and schema.get("type") != "integer":
            raise self.refusal(f"{place}.multipleOf", "is supported for integers only")
        binding = [key for key in schema if key in BINDING]
        alone = [key for key in binding if key in ALONE]
        allowed = {"type"} if alone and alone[0] in ("enum", "const") else set()
        beside = [key for key in binding if key not in allowed and key != (alone[0] if alone else key)]
        if beside:
            raise self.refusal(f"{place}.{beside[0]}", f"is not supported beside {alone[0]}")
        if not alone:
            self.check_types(schema, binding, place)

    def check_types(self, schema: Mapping[str, Any], binding: Sequence[str], place: str) -> None:
        """A bound says something of one type alone; without the type it would bind nothing. Objects and arrays are told by their parts."""
        types = type_names(schema)
        if any(not isinstance(name, str) or name not in PYTHON for name in types):
            raise self.refusal(f"{place}.type", f"must name types of JSON, got {schema.get('type')!r}")
        told = {"properties": OBJECT, "items": ARRAY, "prefixItems": ARRAY}
        known = {key for name in types for key in BY_TYPE.get(name, ())}
        known.update(*(keys for key, keys in told.items() if key in schema and not types))
        for key in binding:
            if key not in known and key != "type":
                raise self.refusal(f"{place}.{key}", f"needs a type that it applies to, beside type {schema.get('type')!r}")

    def check_reference(self, schema: Mapping[str, Any], place: str) -> None:
        reference = schema.get("$ref")
        if "$ref" in schema and (not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/"))):
            raise self.refusal(f"{place}.$ref", "must point into this schema (#/...)")
        if "$ref" in schema and self.resolved(schema) is None:
            raise self.refusal(f"{place}.$ref", f"points to {reference!r}, where nothing is")
        if len(schema.get("allOf", ())) > 1:
            raise self.refusal(f"{place}.allOf", "is supported with one schema only")

    def check_values(self, schema: Mapping[str, Any], place: str) -> None:
        """Values are compared with the type here: the library looks at the values alone."""
        types = type_names(schema)
        values = [schema["const"]] if "const" in schema else schema.get("enum", ())
        for value in values if types else ():
            if not any(is_of(value, name) for name in types):
                raise self.refusal(f"{place}.{'const' if 'const' in schema else 'enum'}", f"holds {value!r}, which is not of its type")

    def check_string(self, schema: Mapping[str, Any], place: str) -> None:
        if schema.get("format") in FORMATS_NOT_HONOURED:
            raise self.refusal(f"{place}.format", f"{schema['format']!r} is not supported")
        together = [key for key in ("pattern", "format", "minLength", "maxLength") if schema.get(key) is not None]
        if len(together) > 1 and together[0] in ("pattern", "format"):
            raise self.refusal(f"{place}.{together[1]}", f"is not supported beside {together[0]}")

    def check_object(self, schema: Mapping[str, Any], place: str) -> None:
        patterns, names = schema.get("patternProperties"), schema.get("properties")
        others = schema.get("additionalProperties")
        if patterns and (len(patterns) > 1 or others not in (None, False)):
            raise self.refusal(f"{place}.patternProperties", "is supported with one pattern, and without additionalProperties")
        if patterns and names and any(matches(pattern, name) for pattern in patterns for name in names):
            raise self.refusal(f"{place}.patternProperties", "matches a name in properties")
        if "propertyNames" in schema and (names or patterns or others not in (None, True)):
            raise self.refusal(f"{place}.propertyNames", "is supported alone only")

    def check_union(self, schema: Mapping[str, Any], place: str) -> None:
        """Exactly one of several can be held to only where no text fits two of them."""
        branches = [self.resolved(branch) for branch in schema.get("oneOf", ())]
        for i, one in enumerate(branches):
            if any(not apart(one, other) for other in branches[i + 1 :]):
                raise self.refusal(f"{place}.oneOf", "is supported where types or a constant property tell its schemas apart; use anyOf")

    def resolved(self, schema: Any) -> Any:
        """What a reference points to, through others; None where nothing is."""
        for _ in range(DEEPEST):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            found: Any = self.root
            for step in str(schema["$ref"]).split("/")[1:]:
                key = step.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, dict) else None
            schema = found
        return None

    @staticmethod
    def opened(schema: dict[str, Any]) -> dict[str, Any]:
        """The library closes what says nothing of its contents, and knows no required property that is not declared."""
        types = type_names(schema)
        if "object" in types or "properties" in schema:
            missing = [name for name in schema.get("required", ()) if name not in schema.get("properties", {})]
            if missing:
                schema["properties"] = {**schema.get("properties", {}), **dict.fromkeys(missing, True)}
            if not any(key in schema for key in ("properties", "patternProperties", "propertyNames", "additionalProperties")):
                schema["additionalProperties"] = True
        if "array" in types and "items" not in schema and "prefixItems" not in schema:
            schema["items"] = True
        return schema

    def refusal(self, place: str, what: str) -> BadRequest:
        return BadRequest(f"{place} {what}.", self.param)


def type_names(schema: Mapping[str, Any]) -> list[Any]:
    declared = schema.get("type", [])
    return declared if isinstance(declared, list) else [declared]


def is_of(value: Any, name: Any) -> bool:
    if isinstance(value, bool):
        return bool(name == "boolean")
    return isinstance(value, PYTHON.get(name, ()))


def matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True


def apart(one: Any, other: Any) -> bool:
    """Whether it is plain that no value fits both."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    values = values_of(one), values_of(other)
    if values[0] is not None and values[1] is not None:
        return not any(value in values[1] for value in values[0])
    kinds = set(map(kind, type_names(one))), set(map(kind, type_names(other)))
    if kinds[0] and kinds[1] and kinds[0].isdisjoint(kinds[1]):
        return True
    return kinds[0] == kinds[1] == {"object"} and any(told_apart(name, one, other) for name in one.get("required", ()))


def told_apart(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Both must have the property, and it has other values in each."""
    if name not in other.get("required", ()):
        return False
    values = [values_of(schema.get("properties", {}).get(name)) for schema in (one, other)]
    return values[0] is not None and values[1] is not None and not any(value in values[1] for value in values[0])


def values_of(schema: Any) -> list[Any] | None:
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    listed: list[Any] | None = schema.get("enum")
    return listed


def kind(name: Any) -> Any:
    """An integer is a number too."""
    return "number" if name == "integer" else name
