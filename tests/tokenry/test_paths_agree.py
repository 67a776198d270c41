"""The same tokens give the same message on every path: coupled, /derender, generate's derender mode, and a session; whole and in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.conftest import Scene
from tests.contract.targets import HERMES
from tests.world import Server, Tenant, World, script

MESSAGES = [{"role": "user", "content": "Wie ist das Wetter?"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("weather", "time")]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich 🌧", "days": [1, {"a": "}"}]}}\n</tool_call>'
SPECIAL = {"<think>": 259, "</think>": 260, "<tool_call>": 261, "</tool_call>": 262}
TEXTS = {
    "content": "<think>Grüße 🙂</think>Hallo 世界",
    "calls": f"<think>Sehen wir nach</think>Moment.{CALL}{CALL.replace('weather', 'time')}",
    "calls alone": f"</think>{CALL}",
    "an unclosed call": f"<think>x</think>{CALL[:-30]}",
    "reasoning alone": "<think>noch nicht fertig",
    "broken json": "<think>x</think><tool_call>\n{nonsense\n</tool_call> rest",
}
FIELDS: dict[str, dict[str, Any]] = {
    "auto": {"tools": TOOLS},
    "one call": {"tools": TOOLS, "parallel_tool_calls": False},
    "required": {"tools": TOOLS, "tool_choice": "required"},
    "named": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "weather"}}},
    "hidden": {"tools": TOOLS, "include_reasoning": False},
    "no tools": {},
}
Message = dict[str, Any]
CHUNKINGS = {"one by one": 1, "five": 5, "at once": 1000}


@pytest.fixture(scope="session")
def node(world: World) -> Server:
    return world.scripted_node("paths-node", *HERMES)


@pytest.fixture(scope="session")
def alice(world: World, node: Server, scripted: Scene) -> Tenant:
    return world.scripted_platform("paths", node, *HERMES).tenant("Alice")


def tokens(text: str) -> list[int]:
    """T1's ids: markers are single tokens, the rest are bytes."""
    ids: list[int] = []
    while text:
        marker = next((marker for marker in SPECIAL if text.startswith(marker)), None)
        ids += [SPECIAL[marker]] if marker else text[0].encode()
        text = text[len(marker) if marker else 1 :]
    return ids


def body(text: str, size: int, fields: dict[str, Any]) -> dict[str, Any]:
    ids = [*tokens(text), 258]
    steps = [{"ids": ids[start : start + size]} for start in range(0, len(ids), size)]
    return {"messages": MESSAGES, "max_tokens": 400, **script(*steps), **fields}


# ---- the paths: each takes the request's body and gives (message, finish_reason)


def coupled(tenant: Tenant, asked: dict[str, Any]) -> tuple[Message, str]:
    return of_choice(post(tenant, "/v1/chat/completions", asked)["choices"][0])


def coupled_stream(tenant: Tenant, asked: dict[str, Any]) -> tuple[Message, str]:
    return of_deltas(chunk["choices"][0] for chunk in events(tenant, "/v1/chat/completions", {**asked, "stream": True}))


def derender(tenant: Tenant, asked: dict[str, Any]) -> tuple[Message, str]:
    rendered = post(tenant, "/v1/chat/completions/render", asked)
    generated = post(tenant, "/inference/v1/generate", rendered)
    call = {"generate_response": generated, "chat_request": asked, "prompt_token_ids": rendered["token_ids"]}
    return of_choice(post(tenant, "/v1/chat/completions/derender", call)["choices"][0])


def derender_stream(tenant: Tenant, asked: dict[str, Any]) -> tuple[Message, str]:
    rendered, chunks = generated_chunks(tenant, asked)
    state, made = None, []
    for chunk in chunks:
        call = {"stream": True, "generate_chunk": chunk, "stream_state": state, "chat_request": asked,
                "prompt_token_ids": rendered["token_ids"]}
        answer = post(tenant, "/v1/chat/completions/derender", call)
        state = answer["stream_state"]
        made.append(answer["chunk"]["choices"][0])
    return of_deltas(iter(made))


def derender_mode(tenant: Tenant, asked: dict[str, Any]) -> tuple[Message, str]:
    rendered = post(tenant, "/v1/chat/completions/render", asked)
    return of_choice(post(tenant, "/inference/v1/generate", {**rendered, "output_mode": "derender"})["choices"][0])


def derender_mode_stream(tenant: Tenant, asked: dict[str, Any]) -> tuple[Message, str]:
    rendered = post(tenant, "/v1/chat/completions/render", asked)
    made = events(tenant, "/inference/v1/generate", {**rendered, "output_mode": "derender", "stream": True})
    return of_deltas(chunk["choices"][0] for chunk in made)


def session(tenant: Tenant, asked: dict[str, Any]) -> tuple[Message, str]:
    rendered, chunks = generated_chunks(tenant, asked)
    with connect(tenant.url.replace("http", "ws") + "/v1/derender/session", additional_headers=tenant.headers) as socket:
        opening = {"type": "open", "session_id": "s", "chat_request": asked, "prompt_token_ids": rendered["token_ids"]}
        socket.send(json.dumps(opening))
        assert json.loads(socket.recv(timeout=10))["type"] == "opened"
        made = []
        for seq, chunk in enumerate(chunks):
            socket.send(json.dumps({"type": "chunk", "session_id": "s", "seq": seq, "generate_chunk": chunk}))
            made.append(json.loads(socket.recv(timeout=10))["chunk"]["choices"][0])
    return of_deltas(iter(made))


PATHS: list[Callable[[Tenant, dict[str, Any]], tuple[Message, str]]] = [
    coupled_stream, derender, derender_stream, derender_mode, derender_mode_stream, session
]  # fmt: skip


def post(tenant: Tenant, path: str, payload: dict[str, Any]) -> Any:
    answer = tenant.http.post(path, json=payload)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


def events(tenant: Tenant, path: str, payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with tenant.http.stream("POST", path, json=payload) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]" and (chunk := json.loads(line[6:])).get("choices"):
                yield chunk


def generated_chunks(tenant: Tenant, asked: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    rendered = post(tenant, "/v1/chat/completions/render", asked)
    return rendered, list(events(tenant, "/inference/v1/generate", {**rendered, "stream": True}))


def of_choice(choice: dict[str, Any]) -> tuple[Message, str]:
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return {"content": message["content"] or "", "reasoning": message["reasoning"] or "", "calls": calls}, choice["finish_reason"]


def of_deltas(choices: Iterator[dict[str, Any]]) -> tuple[Message, str]:
    """What a client of the stream puts together. An empty content and none are the same to it."""
    made: Message = {"content": "", "reasoning": "", "calls": []}
    reason = ""
    for choice in choices:
        delta = choice.get("delta") or {}
        made["content"] += delta.get("content") or ""
        made["reasoning"] += delta.get("reasoning") or ""
        for part in delta.get("tool_calls") or ():
            if part["index"] == len(made["calls"]):
                made["calls"].append({"name": part["function"]["name"], "arguments": ""})
            made["calls"][part["index"]]["arguments"] += part["function"].get("arguments") or ""
        reason = choice["finish_reason"] or reason
    return made, reason


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
@pytest.mark.parametrize("size", CHUNKINGS.values(), ids=CHUNKINGS.keys())
def test_paths_agree(alice: Tenant, path: Callable[[Tenant, dict[str, Any]], tuple[Message, str]], size: int) -> None:
    for name, kind in (*((name, "auto") for name in TEXTS), *(("calls", kind) for kind in FIELDS)):
        asked = body(TEXTS[name], size, FIELDS[kind])
        assert path(alice, asked) == coupled(alice, asked), (name, kind)


def test_the_message_that_they_agree_on(alice: Tenant) -> None:
    message, reason = coupled(alice, body(TEXTS["calls"], 3, FIELDS["auto"]))
    assert (message["content"], message["reasoning"], reason) == ("Moment.", "Sehen wir nach", "tool_calls")
    assert [call["name"] for call in message["calls"]] == ["weather", "time"]
    assert json.loads(message["calls"][0]["arguments"]) == {"city": "Zürich 🌧", "days": [1, {"a": "}"}]}
