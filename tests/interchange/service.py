"""One server as a step of the pipeline, and what a reader takes from the answers of any two that are right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

GENERATE = "/inference/v1/generate"
Body = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """Chat or completions: where its endpoints are, and how the generated tokens are wrapped for derender."""

    name: str
    path: str
    request_key: str

    def wrap(self, request: Body, prompt: list[int], generated: Body) -> Body:
        if self.name == "chat":
            return {"generate_response": generated, "prompt_tokens": len(prompt), "prompt_token_ids": prompt, self.request_key: request}
        many = {"generate_responses": [generated], "prompt_tokens": [len(prompt)], "prompt_token_ids": [prompt]}
        return {**many, self.request_key: request}

    def wrap_chunk(self, request: Body, prompt: list[int], chunk: Body, state: Body | None) -> Body:
        known = {"prompt_tokens": len(prompt), "prompt_token_ids": prompt, self.request_key: request}
        return {"stream": True, "generate_chunk": chunk, "stream_state": state, **known}


CHAT = Kind("chat", "/v1/chat/completions", "chat_request")
COMPLETIONS = Kind("completions", "/v1/completions", "completion_request")


@dataclass(frozen=True)
class Service:
    """Whoever answers, ours or vLLM's: the endpoints are the same."""

    name: str
    http: httpx.Client

    def post(self, path: str, body: Body) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, f"{self.name} answered {answer.status_code} on {path}: {answer.text[:500]}"
        return answer.json()

    def events(self, path: str, body: Body) -> list[Body]:
        with self.http.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, f"{self.name} answered {answer.status_code} on {path}: {answer.read()[:500]!r}"
            lines = [line.removeprefix("data:").strip() for line in answer.iter_lines() if line.startswith("data:")]
        assert lines[-1] == "[DONE]", f"{self.name} ended without [DONE]"
        return [json.loads(line) for line in lines[:-1]]

    def render(self, kind: Kind, request: Body) -> Body:
        rendered = self.post(f"{kind.path}/render", request)
        only: Body = rendered if kind is CHAT else rendered[0]
        return only

    def derender(self, kind: Kind, request: Body, prompt: list[int], generated: Body) -> Body:
        derendered: Body = self.post(f"{kind.path}/derender", kind.wrap(request, prompt, generated))
        return derendered

    def derender_chunks(self, kind: Kind, request: Body, prompt: list[int], chunks: Iterable[Body]) -> Iterator[Body]:
        """One call a chunk, each with the state that the last one gave back."""
        state = None
        for chunk in chunks:
            answer = self.post(f"{kind.path}/derender", kind.wrap_chunk(request, prompt, chunk, state))
            state = answer["stream_state"]
            yield answer["chunk"]


@dataclass
class Reading:
    """What counts in an answer, whoever gave it and however it came: in one piece, or in chunks."""

    text: str = ""
    finish_reason: str | None = None
    tokens: list[tuple[str, Any]] = field(default_factory=list)  # string and bytes; no bytes where the shape has none
    logprobs: list[float] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)
    usage: tuple[int, int] | None = None

    def add(self, answer: Body) -> Reading:
        for choice in answer["choices"]:
            said = choice.get("message") or choice.get("delta") or {}
            self.text += choice.get("text") or said.get("content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            self.add_logprobs(choice.get("logprobs"))
        if answer.get("usage"):
            self.usage = answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]
        return self

    def add_logprobs(self, logprobs: Body | None) -> None:
        if logprobs is None:
            return
        if "content" in logprobs:
            for entry in logprobs["content"] or []:
                self.tokens.append((entry["token"], entry["bytes"]))
                self.logprobs.append(entry["logprob"])
                self.candidates.append([candidate["token"] for candidate in entry["top_logprobs"]])
        else:
            self.tokens += [(token, None) for token in logprobs["tokens"]]
            self.logprobs += logprobs["token_logprobs"]
            self.candidates += [list(candidates) for candidates in logprobs["top_logprobs"]]


def read(*answers: Body) -> Reading:
    reading = Reading()
    for answer in answers:
        reading.add(answer)
    return reading


def close(a: list[float], b: list[float], tolerance: float = 1e-3) -> bool:
    """Two engines on the same weights agree on every logprob to this much."""
    return len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b, strict=True))


def assert_same(got: Reading, expected: Reading) -> None:
    assert (got.text, got.finish_reason, got.usage) == (expected.text, expected.finish_reason, expected.usage)
    assert got.tokens == expected.tokens
    assert got.candidates == expected.candidates
    assert close(got.logprobs, expected.logprobs)
