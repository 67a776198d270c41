"""Token-exact conversations and output offsets over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Scene
from tests.world import script

HI = [{"role": "user", "content": "Hi"}]
PROMPT = [257, *b"user\nHi", 258, 10, 257, *b"assistant\n"]
NEXT = [*HI, {"role": "assistant", "content": "Oh"}, {"role": "user", "content": "?"}]


def asked(**fields: Any) -> dict[str, Any]:
    return {"messages": NEXT, "return_token_ids": True, **script({"ids": [*"ü!".encode(), 258]}), **fields}


def chunks(scene: Scene, payload: dict[str, Any]) -> list[dict[str, Any]]:
    with scene.alice.http.stream("POST", "/v1/chat/completions", json={**payload, "stream": True}) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("answer", "match", "position"), [("Oh", "exact", None), ("Ah", "drifted", len(PROMPT))])
def test_the_ids_so_far_are_kept(scripted: Scene, answer: str, match: str, position: int | None) -> None:
    prefix = [*PROMPT, *answer.encode(), 258]
    payload = asked(required_prefix_token_ids=prefix)
    whole = scripted.alice.http.post("/v1/chat/completions", json=payload).json()
    rendered = scripted.alice.http.post("/v1/chat/completions/render", json=payload).json()
    first = chunks(scripted, payload)[0]
    for said in (whole, rendered, first):
        assert (said["prefix_match"], said["prefix_first_difference"]) == (match, position)
    for ids in (whole["prompt_token_ids"], rendered["token_ids"], first["prompt_token_ids"]):
        assert ids == [*prefix, 10, 257, *b"user\n?", 258, 10, 257, *b"assistant\n"]
    assert scripted.alice.http.post("/inference/v1/generate", json=rendered).status_code == 200
    strict = scripted.alice.http.post("/v1/chat/completions", json={**payload, "strict": True})
    assert strict.status_code == (200 if match == "exact" else 409)


def test_nothing_is_said_unasked(scripted: Scene) -> None:
    whole = scripted.alice.http.post("/v1/chat/completions", json=asked()).json()
    assert not {"prefix_match", "prefix_first_difference"} & set(whole)
    assert "output_offsets" not in whole["choices"][0]


def test_every_token_has_its_place(scripted: Scene) -> None:
    payload = asked(return_output_offsets=True)
    whole = scripted.alice.http.post("/v1/chat/completions", json=payload).json()["choices"][0]["output_offsets"]
    streamed = [entry for chunk in chunks(scripted, payload) for c in chunk["choices"] for entry in c.get("output_offsets") or ()]
    assert streamed == whole
    assert [(entry["start"], entry["end"], entry["part"]) for entry in whole] == [
        (0, 1, "content"), (0, 1, "content"), (1, 2, "content"), (2, 12, "stop")
    ]  # fmt: skip
    assert bytes(byte for entry in whole for byte in entry["bytes"]).decode() == "ü!<|im_end|>"
