"""Every way to get logprobs out of the platform, each as a function from (caller, override) to what came: content and logprobs.

The text is always "é", made of two tokens with two candidates each (`tests.inference.samples`: BASE, DECODED, PLACEHOLDERS).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.inference.samples import ABSENT, BASE, DECODED, DECODED_TEXT, E_IDS, HI, P1, PLACEHOLDER_TEXT, PLACEHOLDERS, b, given
from tests.world import script

FIELD = "return_tokens_as_token_ids"
ROWS = [[[c["token_id"], c["logprob"], c["rank"]] for c in entry["top_logprobs"]] for entry in BASE["content"]]
SCRIPT = script({"ids": E_IDS[:1], "rows": ROWS[:1]}, {"ids": E_IDS[1:], "rows": ROWS[1:], "finish": "stop"})


class Shown(NamedTuple):
    content: str
    logprobs: Any


class Caller(Protocol):
    """Somebody who can ask: over HTTP and WebSockets, or in the test's own process."""

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...
    def events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]: ...
    def frames(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]: ...
    def session(self, original: dict[str, Any]) -> list[dict[str, Any]]: ...


class OverHttp:
    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = self.client.post(path, json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        with self.client.stream("POST", path, json={**body, "stream": True}) as response:
            data = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
        assert data[-1] == "[DONE]"
        return [json.loads(event) for event in data[:-1]]

    @contextmanager
    def socket(self, path: str) -> Iterator[ClientConnection]:
        url = str(self.client.base_url).replace("http", "ws", 1).rstrip("/") + path
        with connect(url, additional_headers={"Authorization": self.client.headers["Authorization"]}, open_timeout=20) as opened:
            yield opened

    def session(self, original: dict[str, Any]) -> list[dict[str, Any]]:
        """A derender session: one frame per token."""
        with self.socket("/v1/derender/session") as socket:
            socket.send(json.dumps({"type": "open", "session_id": "a", **original}))
            assert json.loads(socket.recv(timeout=20))["type"] == "opened"
            chunks = []
            for at in range(len(E_IDS)):
                frame = {"type": "chunk", "session_id": "a", "seq": at, "generate_chunk": generated("r", at, at + 1)}
                socket.send(json.dumps(frame))
                chunks.append(json.loads(socket.recv(timeout=20))["chunk"])
        return chunks

    def frames(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        with self.socket(path) as socket:
            socket.send(json.dumps({"type": "create", "stream_id": "a", "request": body}))
            chunks = []
            while (frame := json.loads(socket.recv(timeout=20)))["type"] == "chunk":
                chunks.append(frame["chunk"])
        assert frame["type"] == "done", frame
        return chunks


# ---- coupled

def chat_body(override: Any) -> dict[str, Any]:
    return given({"messages": HI, "logprobs": True, "top_logprobs": 2, FIELD: override, **SCRIPT})


def text_body(override: Any) -> dict[str, Any]:
    return given({"prompt": "Hi", "logprobs": 2, FIELD: override, **SCRIPT})


def coupled_chat(caller: Caller, override: Any) -> Shown:
    choice = caller.post("/v1/chat/completions", chat_body(override))["choices"][0]
    return Shown(choice["message"]["content"], choice["logprobs"]["content"])


def coupled_chat_stream(caller: Caller, override: Any) -> Shown:
    return chat_chunks(caller.events("/v1/chat/completions", chat_body(override)))


def coupled_chat_socket(caller: Caller, override: Any) -> Shown:
    return chat_chunks(caller.frames("/v1/chat/completions", chat_body(override)))


def coupled_text(caller: Caller, override: Any) -> Shown:
    choice = caller.post("/v1/completions", text_body(override))["choices"][0]
    return Shown(choice["text"], choice["logprobs"])


def coupled_text_stream(caller: Caller, override: Any) -> Shown:
    return text_chunks(caller.events("/v1/completions", text_body(override)))


def coupled_text_socket(caller: Caller, override: Any) -> Shown:
    return text_chunks(caller.frames("/v1/completions", text_body(override)))


# ---- /derender

def derender_chat(caller: Caller, override: Any) -> Shown:
    body = {"generate_response": generated("r"), "chat_request": chat_body(override)}
    choice = caller.post("/v1/chat/completions/derender", body)["choices"][0]
    return Shown(choice["message"]["content"], choice["logprobs"]["content"])


def derender_chat_stream(caller: Caller, override: Any) -> Shown:
    return chat_chunks(derendered(caller, "/v1/chat/completions/derender", "chat_request", chat_body(override)))


def derender_text(caller: Caller, override: Any) -> Shown:
    body = {"generate_responses": [generated("r")], "completion_request": text_body(override)}
    choice = caller.post("/v1/completions/derender", body)["choices"][0]
    return Shown(choice["text"], choice["logprobs"])


def derender_text_stream(caller: Caller, override: Any) -> Shown:
    return text_chunks(derendered(caller, "/v1/completions/derender", "completion_request", text_body(override)))


def derender_chat_session(caller: Caller, override: Any) -> Shown:
    return chat_chunks(caller.session({"chat_request": chat_body(override)}))


def derender_text_session(caller: Caller, override: Any) -> Shown:
    return text_chunks(caller.session({"completion_request": text_body(override)}))


def generated(request_id: str, start: int = 0, end: int = 2) -> dict[str, Any]:
    """A generate answer, or a chunk of one, in tokens mode."""
    logprobs = {"content": BASE["content"][start:end]}
    reason = "stop" if end == len(E_IDS) else None
    choice = {"index": 0, "token_ids": E_IDS[start:end], "logprobs": logprobs, "finish_reason": reason}
    return {"request_id": request_id, "choices": [choice]}


def derendered(caller: Caller, path: str, key: str, original: dict[str, Any]) -> list[dict[str, Any]]:
    """One call per token."""
    state, chunks = None, []
    for start in range(len(E_IDS)):
        body = {"stream": True, "generate_chunk": generated("r", start, start + 1), "stream_state": state, key: original}
        answer = caller.post(path, body)
        state = answer["stream_state"]
        chunks.append(answer["chunk"])
    return chunks


# ---- generate

def generate_body(mode: str, override: Any) -> dict[str, Any]:
    context = given({"tools": None, "tool_choice": "none", FIELD: override})
    params = {"logprobs": 2, "extra_args": SCRIPT["vllm_xargs"]}
    return {"token_ids": P1, "sampling_params": params, "output_mode": mode, "parse_context": context}


def generate_derender(caller: Caller, override: Any) -> Shown:
    choice = caller.post("/inference/v1/generate", generate_body("derender", override))["choices"][0]
    return Shown(choice["message"]["content"], choice["logprobs"]["content"])


def generate_derender_stream(caller: Caller, override: Any) -> Shown:
    return chat_chunks(caller.events("/inference/v1/generate", generate_body("derender", override)))


def generate_text(caller: Caller, override: Any) -> Shown:
    choice = caller.post("/inference/v1/generate", generate_body("text", override))["choices"][0]
    return Shown(choice["text"], choice["logprobs"]["content"])


def generate_text_stream(caller: Caller, override: Any) -> Shown:
    chunks = caller.events("/inference/v1/generate", generate_body("text", override))
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return Shown("".join(choice["text"] for choice in choices), [e for choice in choices for e in choice["logprobs"]["content"]])


# ---- streams put together

def chat_chunks(chunks: list[dict[str, Any]]) -> Shown:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    return Shown(content, [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]])


def text_chunks(chunks: list[dict[str, Any]]) -> Shown:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    parts = [choice["logprobs"] for choice in choices if choice["logprobs"] is not None]
    joined = {name: [value for part in parts for value in part[name]] for name in DECODED_TEXT}
    return Shown("".join(choice["text"] for choice in choices), joined)


# ---- what must come

def coupled_placeholders() -> list[dict[str, Any]]:
    """Coupled chats give a placeholder the bytes of the decoded token, and a candidate's those of the placeholder (pipeline.md 8.4)."""
    return [
        {**shown, "bytes": decoded["bytes"], "top_logprobs": [{**top, "bytes": b(top["token"])} for top in shown["top_logprobs"]]}
        for shown, decoded in zip(PLACEHOLDERS, DECODED, strict=True)
    ]


COUPLED_CHAT = (DECODED, coupled_placeholders())
CHAT = (DECODED, PLACEHOLDERS)
TEXT = (DECODED_TEXT, PLACEHOLDER_TEXT)
Path = Callable[[Caller, Any], Shown]
COUPLED: Mapping[Path, Any] = MappingProxyType({
    coupled_chat: COUPLED_CHAT, coupled_chat_stream: COUPLED_CHAT, coupled_chat_socket: COUPLED_CHAT,
    coupled_text: TEXT, coupled_text_stream: TEXT, coupled_text_socket: TEXT,
})  # fmt: skip
DERENDER: Mapping[Path, Any] = MappingProxyType({
    derender_chat: CHAT, derender_chat_stream: CHAT, derender_text: TEXT, derender_text_stream: TEXT,
    generate_derender: CHAT, generate_derender_stream: CHAT,
})  # fmt: skip
SESSIONS: Mapping[Path, Any] = MappingProxyType({derender_chat_session: CHAT, derender_text_session: TEXT})
TEXT_MODE = (generate_text, generate_text_stream)
EXPECTED: Mapping[Path, Any] = MappingProxyType({**COUPLED, **DERENDER, **SESSIONS, **dict.fromkeys(TEXT_MODE, CHAT)})


def right(path: Path, shown: Shown, *, placeholders: bool) -> bool:
    return shown == Shown("é", EXPECTED[path][placeholders])


__all__ = ["ABSENT", "COUPLED", "DERENDER", "EXPECTED", "SESSIONS", "TEXT_MODE", "Caller", "OverHttp", "Shown", "right"]
