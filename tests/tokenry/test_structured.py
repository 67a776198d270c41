"""Structured outputs over HTTP: what the real model writes is what the schema says, and what cannot be compiled is a 400 at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import jsonschema
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.conftest import Scene

pytestmark = pytest.mark.slow

TEXT = {"type": "string", "maxLength": 12}
NODE = {"type": "object", "properties": {"name": TEXT, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["name", "next"], "additionalProperties": False}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SCHEMAS: dict[str, Any] = {
    "boolean": {"type": "boolean"},
    "integer bounds": {"type": "integer", "minimum": 10, "maximum": 20},
    "number bounds": {"type": "number", "minimum": -1.5, "maximum": 1.5},
    "exclusive": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 99},
    "enum": {"enum": ["red", "green", 5, None]},
    "unicode enum": {"enum": ["Zürich", "東京", "🙂"]},
    "const": {"const": {"ok": [1, "ü"]}},
    "string lengths": {"type": "string", "minLength": 3, "maxLength": 8},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "date": {"type": "string", "format": "date"},
    "array": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": ["a", "b"]}], "items": False, "minItems": 2},
    "object": closed(city=TEXT, population={"type": "integer", "minimum": 0, "maximum": 10_000_000}),
    "unicode keys": closed(größe={"type": "integer", "minimum": 1, "maximum": 9}, 名前={"enum": ["山田", "佐藤"]}),
    "optional": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": TEXT}, "additionalProperties": False},
    "nested": closed(person=closed(name=TEXT, address=closed(street=TEXT, zip={"type": "string", "pattern": "^[0-9]{5}$"}))),
    "nested arrays": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
                      "minItems": 1, "maxItems": 2},
    "nullable": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
    "any of": {"anyOf": [closed(a={"type": "boolean"}), closed(b={"enum": [1, 2]})]},
    "one of": {"oneOf": [closed(kind={"const": "cat"}, lives={"enum": [7, 9]}), closed(kind={"const": "dog"}, tricks={"type": "boolean"})]},
    "reference": {"$defs": {"point": closed(x={"enum": [0, 1]}, y={"enum": [0, 1]})},
                  **closed(start={"$ref": "#/$defs/point"}, end={"$ref": "#/$defs/point"})},
    "recursion": {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    "additional": {"type": "object", "additionalProperties": {"enum": [1, 2]}, "maxProperties": 2},
    "min properties": {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}, "c": {"enum": [3]}},
                       "minProperties": 2, "additionalProperties": False},
}


def formatted(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def asked(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Answer in JSON."}], "temperature": 0.0, "max_tokens": 160, **fields}


async def test_every_finished_answer_is_valid(real: Scene) -> None:
    async with real.alice.asynchronous() as client:
        client.timeout = httpx.Timeout(300)
        answers = await asyncio.gather(*(
            client.post("/v1/chat/completions", json=asked(response_format=formatted(schema), seed=i, temperature=0.7))
            for i, schema in enumerate(SCHEMAS.values())
        ))
    unfinished = []
    for (name, schema), answer in zip(SCHEMAS.items(), answers, strict=True):
        assert answer.status_code == 200, (name, answer.text)
        choice = answer.json()["choices"][0]
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["message"]["content"]), schema)
        else:
            unfinished.append(name)
    assert len(unfinished) <= 2, unfinished


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "param"), [
    ({"response_format": formatted({"type": "integer", "minimum": 5, "maximum": 1})}, "response_format"),
    ({"response_format": formatted({"not": {}})}, "response_format"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
    ({"structured_outputs": {"grammar": "root ::= nowhere"}}, "structured_outputs"),
])
def test_what_cannot_be_compiled_is_a_400_before_the_streams_head(real: Scene, fields: dict[str, Any], param: str, stream: bool) -> None:
    answer = real.alice.http.post("/v1/chat/completions", json=asked(**fields, stream=stream))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(("structure", "texts"), [
    ({"choice": ["Ja, gern", "否 \"quoted\""]}, {"Ja, gern", "否 \"quoted\""}),
    ({"regex": "(left|right) [0-9]"}, {f"{side} {i}" for side in ("left", "right") for i in range(10)}),
    ({"grammar": 'root ::= "a" b\nb ::= "b" | "c"'}, {"ab", "ac"}),
])
def test_the_other_kinds(real: Scene, structure: dict[str, Any], texts: set[str]) -> None:
    body = asked(structured_outputs=structure, n=3, temperature=1.0, seed=1)
    answer = real.alice.http.post("/v1/chat/completions", json=body).json()
    assert {choice["message"]["content"] for choice in answer["choices"]} <= texts
    text = real.alice.http.post("/v1/completions", json={"prompt": "x", "structured_outputs": structure, "max_tokens": 40}).json()
    assert text["choices"][0]["text"] in texts


def test_a_generate_request_as_rendered(real: Scene) -> None:
    body = asked(response_format=formatted(closed(a={"enum": [1, 2]})))
    rendered = real.alice.http.post("/v1/chat/completions/render", json=body).json()
    generated = real.alice.http.post("/inference/v1/generate", json={**rendered, "output_mode": "text"}).json()
    assert json.loads(generated["choices"][0]["text"]) in ({"a": 1}, {"a": 2})


class City(BaseModel):
    name: str
    is_capital: bool


def test_the_openai_clients_parse(real: Scene) -> None:
    client = OpenAI(base_url=f"{real.alice.url}/v1", api_key=real.alice.key, max_retries=0)
    messages: Any = [{"role": "user", "content": "Tell me about Paris."}]
    parsed = client.chat.completions.parse(model="smollm2", messages=messages, response_format=City, temperature=0, max_tokens=80)
    assert isinstance(parsed.choices[0].message.parsed, City)
