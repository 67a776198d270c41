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
from tests.tokenry.schemas import SCHEMAS, closed

pytestmark = pytest.mark.slow

def formatted(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def asked(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Answer in JSON."}], "temperature": 0.0, "max_tokens": 160, **fields}


async def test_every_answer_is_valid(real: Scene) -> None:
    """All at once, so that every schema is held to beside all others."""
    async with real.alice.asynchronous() as client:
        client.timeout = httpx.Timeout(300)
        answers = await asyncio.gather(*(
            client.post("/v1/chat/completions", json=asked(response_format=formatted(schema), seed=i, temperature=0.7, max_tokens=400))
            for i, schema in enumerate(SCHEMAS.values())
        ))
    faults = {name: fault for (name, schema), answer in zip(SCHEMAS.items(), answers, strict=True) if (fault := fault_of(answer, schema))}
    assert not faults


def fault_of(answer: httpx.Response, schema: Any) -> str | None:
    """What is wrong with an answer, if anything: it is none, it did not come to its end, or it is not what the schema says."""
    if answer.status_code != 200:
        return answer.text
    choice = answer.json()["choices"][0]
    content = choice["message"]["content"]
    if choice["finish_reason"] != "stop":
        return f"{choice['finish_reason']}: {content}"
    try:
        jsonschema.validate(json.loads(content), schema)
    except (ValueError, jsonschema.ValidationError) as exc:
        return f"{exc}: {content}"
    return None


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
