"""Nodes of earlier versions: ours, behind a door that knows less. Each version refuses, overlooks and leaves out what it must."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from tests.world import NODE_SECRET, free_port

Body = dict[str, Any]
OVERRIDE = "return_tokens_as_token_ids"
KNOWN = {
    "request_id", "token_ids", "token_offsets", "features", "content_parts", "sampling_params", "model", "reasoning_ended",
    "reasoning_parser_kwargs", "parse_context", "return_token_ids", "output_mode", "stream", "stream_options", "cache_salt", "priority",
    "kv_transfer_params", "ec_transfer_params",
}  # fmt: skip


@dataclass(frozen=True)
class Version:
    """`refusal` names the key that is refused; `overlooks` is ignored in requests, `lacks` is left out of answers."""

    refusal: Callable[[Body], str | None] = lambda body: None
    overlooks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ("render_fingerprint",)


def derender_mode(body: Body) -> str | None:
    return "output_mode" if body.get("output_mode") == "derender" else None


def override_key(body: Body) -> str | None:
    """In derender mode an unknown key of parse_context is refused, also when it is null."""
    unknown = body.get("output_mode") == "derender" and OVERRIDE in (body.get("parse_context") or {})
    return f"parse_context.{OVERRIDE}" if unknown else None


def unknown_key(body: Body) -> str | None:
    return next((name for name in body if name not in KNOWN), None)


VERSIONS = {
    "before output_mode": Version(overlooks=("output_mode", "parse_context"), lacks=("render_fingerprint", "output_mode")),
    "tokens and text": Version(refusal=derender_mode, overlooks=("parse_context",)),
    "without the override's key": Version(refusal=override_key),
    "refusing every unknown key": Version(
        refusal=unknown_key, overlooks=("output_mode", "parse_context"), lacks=("render_fingerprint", "output_mode")
    ),
}


class OldNode:
    """The ASGI application. Everything but generate passes as it is."""

    def __init__(self, upstream: str, version: Version) -> None:
        self.version = version
        self.client = httpx.AsyncClient(base_url=upstream, headers={"Authorization": f"Bearer {NODE_SECRET}"}, timeout=30)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"].endswith("/generate"):
            await self.generate(json.loads(raw), send)
        else:
            response = await self.client.request(scope["method"], scope["path"], content=raw, headers={"content-type": "application/json"})
            await reply(send, response.status_code, response.content)

    async def generate(self, body: Body, send: Any) -> None:
        if (name := self.version.refusal(body)) is not None:
            error = {"message": f"unknown {name}", "type": "Bad Request", "param": name, "code": 400}
            await reply(send, 400, json.dumps({"error": error}).encode())
            return
        asked = {name: value for name, value in body.items() if name not in self.version.overlooks}
        async with self.client.stream("POST", "/inference/v1/generate", json=asked) as response:
            if not response.headers["content-type"].startswith("text/event-stream"):
                await reply(send, response.status_code, self.told(await response.aread()))
                return
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    line = f"data: {self.told(line[6:].encode()).decode()}"
                await send({"type": "http.response.body", "body": line.encode() + b"\n", "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def told(self, raw: bytes) -> bytes:
        return json.dumps({name: value for name, value in json.loads(raw).items() if name not in self.version.lacks}).encode()


async def reply(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def old_node(upstream: str, version: str) -> Iterator[str]:
    """Its URL, for as long as it is needed."""
    port = free_port()
    app = OldNode(upstream, VERSIONS[version])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
