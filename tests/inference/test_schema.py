"""What of JSON Schema is held to, and what is refused by its place rather than passed over."""

from __future__ import annotations

from typing import Any

import pytest

from inference.errors import BadRequest
from inference.schema import DEEPEST, checked_schema


def read(schema: Any) -> Any:
    return checked_schema(schema, "schema", "response_format")


HONOURED: list[Any] = [
    True,
    {},
    {"type": "string", "minLength": 1, "maxLength": 5},
    {"type": ["integer", "null"], "minimum": 1},
    {"type": "integer", "multipleOf": 3},
    {"enum": ["a", 1, None]},
    {"type": "string", "enum": ["ü", "日本"]},
    {"const": {"a": [1]}},
    {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"},
    {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
    {"type": "object", "properties": {"a": {"title": "A", "default": 1, "type": "integer"}}, "required": ["a"]},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "made-up"},
    {"title": "T", "allOf": [{"type": "boolean"}]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    {"oneOf": [{"enum": ["a"]}, {"enum": ["b", "c"]}]},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
    {"properties": {"a": True}},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
]


@pytest.mark.parametrize("schema", HONOURED)
def test_these_are_taken_as_they_are(schema: Any) -> None:
    assert read(schema) == schema


REFUSED: list[tuple[Any, str]] = [
    ({"not": {}}, "schema.not"),
    ({"type": "object", "properties": {"a": {"items": {"if": {}}}}}, "schema.properties.a.items.if"),
    ({"type": "array", "uniqueItems": True}, "schema.uniqueItems"),
    ({"type": "number", "multipleOf": 0.5}, "schema.multipleOf"),
    ({"type": "array", "contains": {}}, "schema.contains"),
    ({"minimum": 3}, "schema.minimum"),
    ({"type": "string", "minimum": 3}, "schema.minimum"),
    ({"required": ["a"]}, "schema.required"),
    ({"type": "nope"}, "schema.type"),
    ({"type": 5}, "schema.type"),
    ({"$ref": "#/nope"}, "schema.$ref"),
    ({"$ref": "http://elsewhere/x"}, "schema.$ref"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "schema.$ref"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {}}, "minimum": 1}, "schema.minimum"),
    ({"anyOf": [{"type": "string"}], "minLength": 1}, "schema.minLength"),
    ({"type": "object", "properties": {}, "anyOf": [{"required": ["a"]}]}, "schema.type"),
    ({"allOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]}, "schema.allOf"),
    ({"anyOf": []}, "schema.anyOf"),
    ({"anyOf": [5]}, "schema.anyOf.0"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "schema.oneOf"),
    ({"oneOf": [{"type": "object"}, {"type": "object"}]}, "schema.oneOf"),
    ({"type": "string", "enum": ["a", 1]}, "schema.enum"),
    ({"type": "integer", "const": True}, "schema.const"),
    ({"type": "string", "pattern": "a", "minLength": 2}, "schema.minLength"),
    ({"type": "string", "format": "regex"}, "schema.format"),
    ({"type": "object", "patternProperties": {"a": {}, "b": {}}}, "schema.patternProperties"),
    ({"type": "object", "properties": {"ab": {}}, "patternProperties": {"^a": {}}}, "schema.patternProperties"),
    ({"type": "object", "properties": {"a": {}}, "propertyNames": {"pattern": "a"}}, "schema.propertyNames"),
    ({"properties": []}, "schema.properties"),
    ([], "schema"),
]


@pytest.mark.parametrize(("schema", "place"), REFUSED, ids=[place for _, place in REFUSED])
def test_what_would_be_passed_over_is_refused_by_its_place(schema: Any, place: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(schema)
    assert refused.value.message.startswith(f"{place} ")
    assert refused.value.param == "response_format"


def test_a_union_told_apart_by_a_constant() -> None:
    def kind(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"kind": {"const": name}, "n": {"type": "integer"}}, "required": ["kind"]}

    union = {"$defs": {"Cat": kind("cat"), "Dog": kind("dog")}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
    assert read(union) == union
    with pytest.raises(BadRequest):
        read({"oneOf": [kind("cat"), kind("cat")]})


def test_what_the_library_would_close_is_spelled_out() -> None:
    assert read({"type": "object"})["additionalProperties"] is True
    assert read({"type": "array"})["items"] is True
    assert read({"type": "object", "properties": {"a": {}}, "required": ["a", "b"]})["properties"] == {"a": {}, "b": True}


def test_depth_is_bounded() -> None:
    schema: Any = {}
    for _ in range(DEEPEST + 2):
        schema = {"type": "array", "items": schema}
    with pytest.raises(BadRequest, match="levels deep"):
        read(schema)
