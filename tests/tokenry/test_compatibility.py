"""Capabilities and render fingerprints: how the parts of a pipeline notice that they do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Scene
from tests.contract.targets import Targets
from tests.inference.samples import HI
from tests.tokenry.override_paths import OverHttp
from tests.world import World, script

GENERATE = "/inference/v1/generate"
CAPABILITIES = "/v1/scale_out/capabilities"
OTHER = "0123456789abcdef"
ASKED = {"messages": HI, **script({"ids": [72]}, {"ids": [105], "finish": "stop"})}


@pytest.fixture
def rendered(scripted: Scene) -> dict[str, Any]:
    made: dict[str, Any] = scripted.alice.http.post("/v1/chat/completions/render", json=ASKED).json()
    return made


def test_render_says_with_what_it_rendered(scripted: Scene, rendered: dict[str, Any]) -> None:
    completion = scripted.alice.http.post("/v1/completions/render", json={"prompt": ["a", "b"]}).json()
    served = scripted.alice.http.get(CAPABILITIES).json()["render_fingerprint"]
    assert [each["render_fingerprint"] for each in (rendered, *completion)] == [served] * 3
    assert "render_fingerprint" not in rendered["parse_context"]


@pytest.mark.parametrize("at", ["platform", "node"])
def test_generate_echoes_it_once(scripted: Scene, rendered: dict[str, Any], at: str) -> None:
    client = scripted.alice.http if at == "platform" else scripted.node.node_client
    assert client.post(GENERATE, json=rendered).json()["render_fingerprint"] == rendered["render_fingerprint"]
    chunks = OverHttp(client).events(GENERATE, rendered)
    assert [chunk.get("render_fingerprint") for chunk in chunks] == [rendered["render_fingerprint"], None]
    bare = {name: value for name, value in rendered.items() if name != "render_fingerprint"}
    assert "render_fingerprint" not in client.post(GENERATE, json=bare).json()


@pytest.mark.parametrize("mode", ["tokens", "derender"])
@pytest.mark.parametrize("at", ["platform", "node"])
def test_another_fingerprint_is_a_warning_or_where_strict_a_conflict(
    scripted: Scene, rendered: dict[str, Any], at: str, mode: str
) -> None:
    client = scripted.alice.http if at == "platform" else scripted.node.node_client
    body = {**rendered, "output_mode": mode, "render_fingerprint": OTHER}
    for lenient in ({}, {"strict": None}, {"strict": False}):
        response = client.post(GENERATE, json={**body, **lenient})
        assert response.status_code == 200
        assert OTHER in response.headers["x-tokenry-warning"]
    strict = client.post(GENERATE, json={**body, "strict": True})
    assert (strict.status_code, strict.json()["error"]["param"]) == (409, "render_fingerprint")
    same = client.post(GENERATE, json={**rendered, "strict": True})
    assert (same.status_code, "x-tokenry-warning" in same.headers) == (200, False)


@pytest.mark.parametrize("fingerprint", [None, OTHER])
@pytest.mark.parametrize("kind", ["chat", "chat chunk", "completions", "completions chunk"])
def test_derender_looks_at_it_too(scripted: Scene, kind: str, fingerprint: str | None) -> None:
    answer = {"request_id": "r", "choices": [{"index": 0, "token_ids": [72]}], "render_fingerprint": fingerprint}
    path = f"/v1/{kind.split()[0].replace('chat', 'chat/completions')}/derender"
    if "chunk" in kind:
        body: dict[str, Any] = {"stream": True, "generate_chunk": answer}
    else:
        body = {"generate_response": answer} if kind == "chat" else {"generate_responses": [answer]}
    lenient, strict = (scripted.alice.http.post(path, json={**body, "strict": value}) for value in (False, True))
    assert lenient.status_code == 200
    assert ("x-tokenry-warning" in lenient.headers) == (fingerprint is not None)
    assert strict.status_code == (200 if fingerprint is None else 409)


def test_what_a_server_can_do(world: World, scripted: Scene) -> None:
    shown = scripted.alice.http.get(CAPABILITIES).json()
    assert shown["output_modes"] == ["tokens", "text", "derender"]
    assert "return_tokens_as_token_ids" in shown["parse_context_keys"]
    assert {"hermes", "mistral", "llama3_json", "qwen3_xml"} <= set(shown["tool_call_parsers"])
    assert {"deepseek_r1", "qwen3"} <= set(shown["reasoning_parsers"])
    assert (shown["tool_call_parser"], shown["reasoning_parser"], shown["max_model_len"]) == (None, None, 512)
    assert scripted.node.node_client.get(CAPABILITIES).json() == shown
    bare = Targets(world, direct=True).node("GT").node_client.get(CAPABILITIES).json()
    assert (bare["output_modes"], bare["render_fingerprint"]) == (["tokens"], None)


def test_another_parser_is_another_fingerprint(world: World, scripted: Scene) -> None:
    parsing = Targets(world, direct=False).platform("hermes").tenant("Alice").http.get(CAPABILITIES).json()
    assert (parsing["tool_call_parser"], parsing["reasoning_parser"]) == ("hermes", "deepseek_r1")
    assert parsing["render_fingerprint"] != scripted.alice.http.get(CAPABILITIES).json()["render_fingerprint"]


def test_capabilities_are_for_those_who_may_come_in(scripted: Scene) -> None:
    assert scripted.platform.node_client.get(CAPABILITIES, headers={"Authorization": ""}).status_code == 401
    assert scripted.node.node_client.get(CAPABILITIES, headers={"Authorization": ""}).status_code == 401
    unknown = scripted.alice.http.get(CAPABILITIES, params={"model": "nope"})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "model")
