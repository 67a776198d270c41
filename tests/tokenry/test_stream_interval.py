"""`stream_interval`: fewer and larger chunks of the same answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Scene
from tests.tokenry.override_paths import OverHttp

TEXT = "é😀 twelve."
STEPS = [{"ids": [byte], "wait_ms": 2} for byte in TEXT.encode()]
TOKENS = len(STEPS)


def chunks(scene: Scene, at: str, **fields: Any) -> list[dict[str, Any]]:
    client = scene.alice.http if at == "platform" else scene.node.node_client
    params = {"logprobs": 0, "max_tokens": TOKENS, "extra_args": {"script": STEPS}, **fields.pop("params", {})}
    return OverHttp(client).events("/inference/v1/generate", {"token_ids": [72], "sampling_params": params, **fields})


@pytest.mark.parametrize("at", ["platform", "node"])
@pytest.mark.parametrize("mode", ["tokens", "text", "derender"])
@pytest.mark.parametrize("interval", [2, 4, 100])
def test_tokens_wait_for_company(scripted: Scene, at: str, mode: str, interval: int) -> None:
    plain = chunks(scripted, at, output_mode=mode)
    gathered = chunks(scripted, at, output_mode=mode, params={"stream_interval": interval})
    sizes = [len(chunk["choices"][0]["token_ids"]) for chunk in gathered]
    assert sizes[0] == 1
    assert all(size == interval for size in sizes[1:-1])
    assert sum(sizes) == TOKENS
    assert content(gathered) == content(plain)
    assert gathered[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("at", ["platform", "node"])
def test_every_choice_waits_for_itself(scripted: Scene, at: str) -> None:
    gathered = chunks(scripted, at, params={"stream_interval": 5, "n": 2})
    for index in (0, 1):
        sizes = [len(choice["token_ids"]) for chunk in gathered for choice in chunk["choices"] if choice["index"] == index]
        assert (sizes[0], sum(sizes), max(sizes)) == (1, TOKENS, 5)


@pytest.mark.parametrize("at", ["platform", "node"])
def test_a_whole_answer_is_the_same(scripted: Scene, at: str) -> None:
    client = scripted.alice.http if at == "platform" else scripted.node.node_client
    params = {"max_tokens": TOKENS, "stream_interval": 5, "extra_args": {"script": STEPS}}
    answer = client.post("/inference/v1/generate", json={"token_ids": [72], "sampling_params": params}).json()
    assert answer["choices"][0]["token_ids"] == list(TEXT.encode())


def content(made: list[dict[str, Any]]) -> list[Any]:
    """Everything that the choices say, however it was cut."""
    choices = [choice for chunk in made for choice in chunk["choices"]]
    text = "".join(choice.get("text") or (choice.get("delta") or {}).get("content") or "" for choice in choices)
    ids = [token_id for choice in choices for token_id in choice["token_ids"]]
    return [text, ids, [entry for choice in choices for entry in choice["logprobs"]["content"]]]
