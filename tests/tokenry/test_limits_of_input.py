"""A few bytes of JSON that ask for very much, and numbers that fit into nothing: a 400 that names the field, at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Scene
from tests.world import script

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], **script({"ids": [72], "finish": "stop"})}
TEXT: dict[str, Any] = {"prompt": "Hi", **script({"ids": [72], "finish": "stop"})}
GENERATE: dict[str, Any] = {"token_ids": [72], "sampling_params": {"extra_args": CHAT["vllm_xargs"]}}
OPENAI = {
    "/v1/chat/completions": CHAT, "/v1/chat/completions/render": CHAT, "/v1/completions": TEXT, "/v1/completions/render": TEXT,
}  # fmt: skip
HUGE = [2**31 - 1, 2**63, 2**64, 10**30]


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("path", OPENAI)
def test_more_choices_than_there_is_memory_for(scripted: Scene, path: str, value: int) -> None:
    """Each choice has a detokenizer of its own, so `n` is held to the server's limit before any is made."""
    refused(scripted.alice.http.post(path, json={**OPENAI[path], "n": value}), "n")


def test_choices_of_many_prompts_count_together(scripted: Scene) -> None:
    refused(scripted.alice.http.post("/v1/completions", json={**TEXT, "prompt": ["Hi"] * 1000, "n": 100}), "n")


@pytest.mark.parametrize("value", [-(2**63) - 1, *HUGE[1:]])
@pytest.mark.parametrize("field", ["priority", "top_k"])
@pytest.mark.parametrize("path", OPENAI)
def test_numbers_beyond_64_bits(scripted: Scene, path: str, field: str, value: int) -> None:
    refused(scripted.alice.http.post(path, json={**OPENAI[path], field: value}), field)


@pytest.mark.parametrize("value", [2**63, 2**64, 10**30])
@pytest.mark.parametrize("field", ["priority", "sampling_params.top_k", "sampling_params.max_tokens", "sampling_params.n"])
def test_numbers_beyond_64_bits_in_generate(scripted: Scene, field: str, value: int) -> None:
    name = field.removeprefix("sampling_params.")
    body = {**GENERATE, name: value} if name == field else {**GENERATE, "sampling_params": {name: value}}
    for client in (scripted.alice.http, scripted.node.node_client):
        refused(client.post("/inference/v1/generate", json=body), name)


def test_a_long_way_beyond_the_context_is_clamped_in_generate(scripted: Scene) -> None:
    body = {**GENERATE, "sampling_params": {**GENERATE["sampling_params"], "max_tokens": 2**63 - 1}}
    for client in (scripted.alice.http, scripted.node.node_client):
        assert client.post("/inference/v1/generate", json=body).json()["choices"][0]["token_ids"] == [72]


LONG = "x" * 100_000


@pytest.mark.parametrize("body", [{"model": LONG}, {"render_fingerprint": LONG, "strict": True}, {"output_mode": LONG}])
def test_messages_repeat_no_more_than_a_few_words(scripted: Scene, body: dict[str, Any]) -> None:
    response = scripted.alice.http.post("/inference/v1/generate", json={**GENERATE, **body})
    assert response.status_code in (400, 404, 409)
    assert len(response.json()["error"]["message"]) < 700


def test_a_warning_repeats_no_more_than_a_few_words(scripted: Scene) -> None:
    response = scripted.alice.http.post("/inference/v1/generate", json={**GENERATE, "render_fingerprint": "x\r\ny" * 100_000})
    assert response.status_code == 200
    assert len(response.headers["x-tokenry-warning"]) < 700


@pytest.mark.parametrize("weight", ["nan", "inf", "-1", "0", "heavy", ""])
def test_a_nodes_weights_are_positive_numbers(scripted: Scene, weight: str) -> None:
    response = scripted.node.node_client.post("/inference/v1/generate", json=GENERATE, headers={"X-Tokenry-Weight": weight})
    refused(response, "x-tokenry-weight")


@pytest.mark.parametrize("path", OPENAI)
def test_more_bad_words_than_can_be_tokenized(scripted: Scene, path: str) -> None:
    """A million short words once held up everybody for ten seconds."""
    refused(scripted.alice.http.post(path, json={**OPENAI[path], "bad_words": ["ab"] * 1025}), "bad_words")


def test_more_bad_words_than_a_step_can_look_at(scripted: Scene) -> None:
    params = {"extra_args": {**GENERATE["sampling_params"]["extra_args"], "bad_words_token_ids": [[72, 73]] * 2049}}
    for client in (scripted.alice.http, scripted.node.node_client):
        refused(client.post("/inference/v1/generate", json={**GENERATE, "sampling_params": params}), "bad_words")


@pytest.mark.parametrize("path", [*OPENAI, "/inference/v1/generate"])
def test_a_request_id_that_every_chunk_would_repeat(scripted: Scene, path: str) -> None:
    refused(scripted.alice.http.post(path, json={**OPENAI.get(path, GENERATE), "request_id": "x" * 1000}), "request_id")


def refused(response: Any, field: str) -> None:
    assert response.status_code == 400, response.text[:300]
    assert response.json()["error"]["param"] in (field, f"body.{field}", f"body.sampling_params.{field}")
