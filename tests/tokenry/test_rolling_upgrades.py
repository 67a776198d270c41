"""Pipelines of several versions at once (pipeline.md 17): new render before old generate, old render before new generate, and a platform
on old nodes. The old ones are `tests.old_node`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.conftest import Scene
from tests.contract.targets import Targets
from tests.inference.samples import ABSENT, HI, given
from tests.old_node import VERSIONS, old_node
from tests.tokenry import override_paths as paths
from tests.world import NODE_SECRET, SCRIPTED, TOKENIZERS, Server, World, script

GENERATE = "/inference/v1/generate"
FIELD = paths.FIELD
MODES = ("tokens", "text", "derender")
SAYS = script({"ids": list(b"Hello"), "finish": "stop"})
ASKED = {"messages": HI, **SAYS}


@pytest.fixture(scope="module")
def old(scripted: Scene) -> Iterator[dict[str, httpx.Client]]:
    with ExitStack() as stack:
        urls = {version: stack.enter_context(old_node(scripted.node.url, version)) for version in VERSIONS}
        headers = {"Authorization": f"Bearer {NODE_SECRET}"}
        yield {version: stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=30)) for version, url in urls.items()}


@pytest.fixture(scope="module")
def platform(world: World, old: dict[str, httpx.Client]) -> Server:
    """A new platform on a node that knows nothing of modes and refuses every key that it does not know."""
    url = str(old["refusing every unknown key"].base_url)
    return world.serve("on-an-old-node", "--role", "platform", "--node", url, "--tokenizer", str(TOKENIZERS / "t1"), *SCRIPTED)


def render(scene: Scene, override: Any = ABSENT) -> dict[str, Any]:
    made: dict[str, Any] = scene.alice.http.post("/v1/chat/completions/render", json=given({**ASKED, FIELD: override})).json()
    return made


# ---- render first

@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_render_before_any_old_generate(scripted: Scene, old: dict[str, httpx.Client], version: str) -> None:
    """Without an override nothing new travels, but for our own top-level keys, which vLLM's nodes ignore."""
    body = {name: value for name, value in render(scripted).items() if name != "render_fingerprint" or "refusing" not in version}
    response = old[version].post(GENERATE, json=body)
    assert (response.status_code, response.json()["choices"][0]["token_ids"]) == (200, list(b"Hello"))


@pytest.mark.parametrize(("override", "status"), [(ABSENT, 200), (None, 200), (True, 400), (False, 400)])
def test_an_override_fails_closed_in_derender_mode(scripted: Scene, old: dict[str, httpx.Client], override: Any, status: int) -> None:
    node = old["without the override's key"]
    rendered = render(scripted, override)
    response = node.post(GENERATE, json={**rendered, "output_mode": "derender"})
    assert response.status_code == status, response.text
    if status == 400:
        assert FIELD in response.json()["error"]["message"]
    for mode in ("tokens", "text"):
        assert node.post(GENERATE, json={**rendered, "output_mode": mode}).status_code == 200


def test_derender_mode_on_a_node_that_knows_tokens_and_text(scripted: Scene, old: dict[str, httpx.Client]) -> None:
    rendered, node = render(scripted), old["tokens and text"]
    answers = {mode: node.post(GENERATE, json={**rendered, "output_mode": mode}) for mode in MODES}
    assert {mode: answer.status_code for mode, answer in answers.items()} == {"tokens": 200, "text": 200, "derender": 400}


@pytest.mark.parametrize("mode", MODES)
def test_a_node_before_output_mode_answers_in_tokens_and_derender_takes_it(
    scripted: Scene, old: dict[str, httpx.Client], mode: str
) -> None:
    """It cannot say which mode it served; an answer that says nothing is one in tokens."""
    answer = old["before output_mode"].post(GENERATE, json={**render(scripted), "output_mode": mode}).json()
    assert "output_mode" not in answer
    assert not {"text", "message"} & set(answer["choices"][0])
    body = {"generate_response": answer, "chat_request": ASKED}
    read = scripted.alice.http.post("/v1/chat/completions/derender", json=body).json()
    assert read["choices"][0]["message"]["content"] == "Hello"


# ---- generate first

@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("kept", [True, False], ids=["parse_context without the key", "no parse_context"])
def test_an_old_render_before_a_new_generate(world: World, scripted: Scene, flag: bool, kept: bool) -> None:
    """The node's own flag decides."""
    node = Targets(world, direct=True).node("G!") if flag else scripted.node
    rendered = render(scripted)
    rendered["sampling_params"]["logprobs"] = 0
    unknown = ("render_fingerprint",) if kept else ("render_fingerprint", "parse_context")
    old_keys = {name: value for name, value in rendered.items() if name not in unknown}
    choice = node.node_client.post(GENERATE, json={**old_keys, "output_mode": "derender"}).json()["choices"][0]
    assert choice["message"]["content"] == "Hello"
    assert choice["logprobs"]["content"][0]["token"] == ("token_id:72" if flag else "H")


@pytest.mark.parametrize("mode", ["text", "derender"])
@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_text_already_is_not_derendered(scripted: Scene, mode: str, streaming: bool) -> None:
    answer = scripted.node.node_client.post(GENERATE, json={**render(scripted), "output_mode": mode}).json()
    chunk = {"request_id": "r", "output_mode": mode, "choices": [{"index": 0, "token_ids": [72]}]}
    body = {"stream": True, "generate_chunk": chunk} if streaming else {"generate_response": answer}
    response = scripted.alice.http.post("/v1/chat/completions/derender", json=body)
    assert (response.status_code, "output_mode" in response.json()["error"]["param"]) == (400, True)


# ---- a platform on old nodes

@pytest.mark.parametrize("override", [ABSENT, None, True, False])
@pytest.mark.parametrize("path", [*paths.COUPLED, paths.generate_derender, paths.generate_derender_stream], ids=lambda p: p.__name__)
def test_tenants_of_a_platform_on_old_nodes_notice_nothing(platform: Server, path: paths.Path, override: Any) -> None:
    shown = path(paths.OverHttp(platform.tenant("Alice").http), override)
    assert paths.right(path, shown, placeholders=override is True), shown


def test_an_abort_reaches_an_old_node(platform: Server) -> None:
    tenant = platform.tenant("Alice")
    slow = script(*[{"ids": [97], "wait_ms": 20}] * 200)
    with tenant.http.stream("POST", "/v1/chat/completions", json={**ASKED, **slow, "stream": True, "request_id": "gone"}) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        next(lines)
        tenant.http.post("/inference/v1/abort_requests", json={"request_ids": ["chatcmpl-gone"]})
        rest = list(lines)
    assert '"finish_reason":"abort"' in rest[-2]
