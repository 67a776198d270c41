"""The OpenAPI schema shows every endpoint with the fields that it really takes and gives."""

from __future__ import annotations

import re
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.generate import GenerateRequest, SamplingParams
from tests.conftest import Scene
from tokenry.api.schema import OPERATIONS, alternatives
from tokenry.asgi import PLATFORM_HTTP

UNSAID = ("/v1/messages/render", "/v1/responses/render")  # APIs that this version does not have


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made


def test_every_consumer_is_in_the_table_and_every_post_says_what_it_takes(schema: dict[str, Any]) -> None:
    assert {("post", path) for path in PLATFORM_HTTP} <= set(OPERATIONS)
    posts = {path: methods["post"] for path, methods in schema["paths"].items() if "post" in methods and path not in UNSAID}
    assert [path for path, operation in posts.items() if "requestBody" not in operation] == []
    assert {(method, path) for path, methods in schema["paths"].items() for method in methods} >= set(OPERATIONS)


@pytest.mark.parametrize("shape", [ChatCompletionRequest, GenerateRequest, SamplingParams])
def test_the_fields_are_those_of_the_wire_types(schema: dict[str, Any], shape: Any) -> None:
    assert set(schema["components"]["schemas"][shape.__name__]["properties"]) == set(shape.__struct_fields__)


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert set(references(schema)) <= known
    assert len(known) > 30


def test_streams_and_alternatives_are_said(schema: dict[str, Any]) -> None:
    chat = schema["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    assert chat["text/event-stream"]["schema"] == {"$ref": "#/components/schemas/ChatChunk"}
    derender = OPERATIONS["post", "/v1/chat/completions/derender"]
    body = schema["paths"]["/v1/chat/completions/derender"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert [each["$ref"].rpartition("/")[2] for each in body["anyOf"]] == [shape.__name__ for shape in alternatives(derender.takes)]


def test_it_is_served_without_a_key_and_without_complaints(scripted: Scene) -> None:
    response = scripted.platform.node_client.get("/schema", headers={"Authorization": ""})
    assert response.json()["openapi"].startswith("3.1")
    assert "serializer" not in scripted.platform.log.read_text()


def test_the_docs_page_asks_no_other_host(scripted: Scene) -> None:
    client = scripted.platform.node_client
    page = client.get("/docs/", headers={"Authorization": ""})
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text
    links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(links) >= 3
    assert {client.get(link).status_code for link in links} == {200}


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []
