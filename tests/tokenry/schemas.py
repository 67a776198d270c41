"""Fifty JSON schemas whose texts are bounded, so that a small model comes to an end; the one recursion is one that it soon tires of."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "maxLength": 12}
BIT = {"enum": [0, 1]}
NEST = {"anyOf": [{"enum": [1, 2, 3]}, {"type": "array", "items": {"$ref": "#/$defs/nest"}, "maxItems": 1}]}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def between(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def listed(items: Any, low: int, high: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


POINT = closed(x=BIT, y=BIT)

SCHEMAS: dict[str, Any] = {
    # scalars
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "integer bounds": between(10, 20),
    "integer bounds below zero": between(-120, -7),
    "integer bounds around zero": between(-3, 1000),
    "number bounds": {"type": "number", "minimum": -1.5, "maximum": 1.5},
    "number bounds at fractions": {"type": "number", "minimum": 0.25, "maximum": 0.75},
    "exclusive": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 99},
    "nullable": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
    # what is listed
    "enum": {"enum": ["red", "green", 5, None]},
    "enum of one": {"enum": ["only"]},
    "unicode enum": {"enum": ["Zürich", "東京", "🙂"]},
    "enum with escapes": {"enum": ["a \"b\"", "c\\d", "e\nf", "\u2028"]},
    "enum of structures": {"enum": [{"a": [1]}, [True, None], "x"]},
    "const": {"const": {"ok": [1, "ü"]}},
    "const text": {"const": "<tool_call> नमस्ते"},
    # strings
    "string lengths": {"type": "string", "minLength": 3, "maxLength": 8},
    "string of one length": {"type": "string", "minLength": 5, "maxLength": 5},
    "empty string": {"type": "string", "maxLength": 0},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "pattern of choices": {"type": "string", "pattern": "^(north|south)(east|west)?$"},
    "unicode pattern": {"type": "string", "pattern": "^[äöü]{1,4}ß$"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
    "uuid": {"type": "string", "format": "uuid"},
    "address": {"type": "string", "format": "ipv4"},
    # arrays
    "array": listed(between(0, 9), 2, 4),
    "empty array": listed({"type": "boolean"}, 0, 0),
    "array of texts": listed(TEXT, 1, 3),
    "array of one length": listed({"enum": ["é", "è"]}, 3, 3),
    "nested arrays": listed(listed({"type": "boolean"}, 1, 2), 1, 2),
    "array of objects": listed(closed(id=between(1, 9), tag={"enum": ["new", "old"]}), 1, 3),
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": ["a", "b"]}], "items": False, "minItems": 2},
    # objects
    "object": closed(city=TEXT, population=between(0, 10_000_000)),
    "empty object": closed(),
    "unicode keys": closed(größe=between(1, 9), 名前={"enum": ["山田", "佐藤"]}),
    "keys with escapes": {"type": "object", "properties": {"a \"b\"": BIT, "c\\d": BIT}, "required": ["a \"b\"", "c\\d"],
                          "additionalProperties": False},
    "optional": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": TEXT}, "additionalProperties": False},
    "some required": {"type": "object", "properties": {"a": BIT, "b": BIT, "c": BIT}, "required": ["b"], "additionalProperties": False},
    "nested": closed(person=closed(name=TEXT, address=closed(street=TEXT, zip={"type": "string", "pattern": "^[0-9]{5}$"}))),
    "additional": {"type": "object", "additionalProperties": {"enum": [1, 2]}, "maxProperties": 2},
    "min properties": {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}, "c": {"enum": [3]}},
                       "minProperties": 2, "additionalProperties": False},
    # one of several, and references
    "any of": {"anyOf": [closed(a={"type": "boolean"}), closed(b={"enum": [1, 2]})]},
    "one of": {"oneOf": [closed(kind={"const": "cat"}, lives={"enum": [7, 9]}), closed(kind={"const": "dog"}, tricks={"type": "boolean"})]},
    "all of one": {"allOf": [closed(a=between(1, 3))]},
    "reference": {"$defs": {"point": POINT}, **closed(start={"$ref": "#/$defs/point"}, end={"$ref": "#/$defs/point"})},
    "references in references": {"$defs": {"point": POINT, "line": listed({"$ref": "#/$defs/point"}, 2, 2)},
                                 **closed(lines=listed({"$ref": "#/$defs/line"}, 1, 2))},
    "recursion": {"$defs": {"nest": NEST}, "$ref": "#/$defs/nest"},
    "references in a chain": {"$defs": {"leaf": closed(value=BIT), "twig": closed(name=TEXT, leaf={"$ref": "#/$defs/leaf"}),
                                        "branch": closed(twigs=listed({"$ref": "#/$defs/twig"}, 1, 2))}, "$ref": "#/$defs/branch"},
}
