"""Tokenizers of other families, served: one answer on every path, by a platform and a node that load the tokenizer from its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from inference.tokenizer import Tokenizer
from tests.inference.families import FAMILIES, Missing, tokenizer_folder
from tests.inference.samples import HI, INSTRUCTION
from tests.tokenry.override_paths import OverHttp
from tests.world import World, script

TEXT = "Grüße 👩‍👩‍👧 日本語\n x\u0301 नमस्ते"
ASKED: dict[str, Any] = {"messages": HI, "logprobs": True, "top_logprobs": 2, "max_tokens": 200}


class Served(NamedTuple):
    caller: OverHttp
    tokenizer: Tokenizer


@pytest.fixture(scope="module", params=FAMILIES)
def served(world: World, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    try:
        folder = tokenizer_folder(request.param)
    except Missing as exc:
        pytest.skip(str(exc))
    template = tmp_path_factory.mktemp("template") / "chat.jinja"
    template.write_text(INSTRUCTION)
    flags = ("--chat-template", str(template))
    node = world.scripted_node(f"{request.param}-node", *flags, tokenizer=str(folder))
    platform = world.scripted_platform(request.param, node, *flags, tokenizer=str(folder))
    yield Served(OverHttp(platform.tenant("Alice").http), Tokenizer.load(Path(folder)))
    platform.stop()
    node.stop()


def test_one_answer_on_every_path(served: Served) -> None:
    """A text of which many a token is part of a character, and a token behind it that ends none."""
    caller, tokenizer = served
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    stray = next(i for i in range(tokenizer.vocab_size) if tokenizer.text(i).broken)
    steps = [{"ids": [i], "rows": [[[i, -0.5, 1], [stray, -1.5, 2]]]} for i in [*ids, stray]]
    asked = {**ASKED, **script(*steps, {"ids": [], "finish": "length"})}

    coupled = caller.post("/v1/chat/completions", asked)["choices"][0]
    rendered = caller.post("/v1/chat/completions/render", asked)
    prompt = rendered["token_ids"]
    assert tokenizer.decode(prompt).endswith("[INST] Hi [/INST]")
    tokens = caller.post("/inference/v1/generate", {**rendered, "output_mode": "tokens"})
    text = caller.post("/inference/v1/generate", {**rendered, "output_mode": "text"})["choices"][0]
    message = caller.post("/inference/v1/generate", {**rendered, "output_mode": "derender"})["choices"][0]
    call = {"chat_request": ASKED, "prompt_token_ids": prompt}
    derendered = caller.post("/v1/chat/completions/derender", {**call, "generate_response": tokens})["choices"][0]
    streamed = [part for chunk in caller.events("/v1/chat/completions", asked) for part in chunk["choices"]]
    chunked = in_chunks(caller, caller.events("/inference/v1/generate", {**rendered, "output_mode": "tokens"}), call)

    assert tokens["choices"][0]["token_ids"] == [*ids, stray]
    assert coupled["message"]["content"].lstrip(" ") == TEXT
    content, named = coupled["message"]["content"], coupled["logprobs"]["content"]
    written = [choice["message"]["content"] for choice in (message, derendered)]
    assert [*written, text["text"], joined(streamed), joined(chunked)] == [content] * 5
    others = [choice["logprobs"]["content"] for choice in (message, derendered, text)]
    assert [*others, entries(streamed), entries(chunked)] == [named] * 5
    assert "".join(entry["token"] for entry in named) == content


def in_chunks(caller: OverHttp, chunks: list[dict[str, Any]], call: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of streaming /derender calls, one for each chunk of a node."""
    state, shown = None, []
    for chunk in chunks:
        body = {**call, "stream": True, "generate_chunk": chunk, "stream_state": state}
        answer = caller.post("/v1/chat/completions/derender", body)
        state = answer["stream_state"]
        shown += answer["chunk"]["choices"]
    return shown


def joined(parts: list[dict[str, Any]]) -> str:
    return "".join(part["delta"]["content"] for part in parts if part["delta"].get("content") is not None)


def entries(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for part in parts if part["logprobs"] is not None for entry in part["logprobs"]["content"]]
