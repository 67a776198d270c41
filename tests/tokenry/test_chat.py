"""`/v1/chat/completions`: it works, then what it refuses."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Scene
from tests.world import Tenant, script

HI = [{"role": "user", "content": "Hi"}]
PROMPT_TOKENS = 21
PATH = "/v1/chat/completions"


def step(ids, finish=None, **more):
    return {"ids": list(ids), "finish": finish, **more}


def chat(tenant: Tenant, *steps, headers=None, **fields):
    return tenant.http.post(PATH, json={"messages": HI, **script(*steps), **fields}, headers=headers)


def events(tenant: Tenant, *steps, **fields):
    """The chunks of a stream, and whether it ended with [DONE]."""
    with tenant.http.stream("POST", PATH, json={"messages": HI, "stream": True, **script(*steps), **fields}) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        data = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    return [json.loads(event) for event in data[:-1]], data[-1] == "[DONE]"


def text_of(chunks, index=0):
    return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"] if c["index"] == index)


def test_an_answer(scripted: Scene):
    body = chat(scripted.alice, step(b"Hello", "stop")).json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "m"
    choice = body["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Hello", "refusal": None, "annotations": None, "audio": None,
                                 "function_call": None, "reasoning": None}
    assert (choice["finish_reason"], choice["stop_reason"], choice["logprobs"]) == ("stop", None, None)
    assert body["usage"]["prompt_tokens"] == PROMPT_TOKENS
    assert body["usage"]["completion_tokens"] == 5


def test_every_answer_carries_its_headers(scripted: Scene):
    response = chat(scripted.alice, step(b"a", "stop"), headers={"x-request-id": "abc"})
    assert response.headers["x-request-id"] == "abc"
    assert response.json()["id"] == "chatcmpl-abc"
    assert response.headers["cache-control"] == "no-store"
    assert float(response.headers["x-tokenry-overhead-ms"]) >= 0


def test_a_stream(scripted: Scene):
    chunks, done = events(scripted.alice, *(step([b]) for b in b"Hello"), step([258]))
    assert done
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert text_of(chunks) == "Hello"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert all("usage" not in chunk for chunk in chunks)


def test_the_usage_chunk_comes_last(scripted: Scene):
    chunks, _ = events(scripted.alice, step(b"Hi", "stop"), stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 2, "total_tokens": PROMPT_TOKENS + 2}


def test_a_character_of_several_tokens_comes_whole(scripted: Scene):
    chunks, _ = events(scripted.alice, *(step([b]) for b in "日😀".encode()), step([258]))
    assert text_of(chunks) == "日😀"
    assert "\ufffd" not in json.dumps(chunks, ensure_ascii=False)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_stop_string_ends_the_answer_and_the_work(scripted: Scene, streaming):
    steps = [step([b], wait_ms=0) for b in b"hello wo"] + [step([120], wait_ms=5)] * 3
    if streaming:
        chunks, done = events(scripted.alice, *steps, stop=["lo"], max_tokens=400)
        assert (text_of(chunks), done) == ("hel", True)
        choice = chunks[-1]["choices"][0]
    else:
        body = chat(scripted.alice, *steps, stop=["lo"], max_tokens=400).json()
        choice = body["choices"][0]
        assert choice["message"]["content"] == "hel"
        assert body["usage"]["completion_tokens"] == 5
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "lo")


def test_n_choices(scripted: Scene):
    both = {"choices": [[step(b"one", "stop")], [step(b"three", "length")]]}
    body = scripted.alice.http.post(PATH, json={"messages": HI, "n": 2, "vllm_xargs": {"script": both}}).json()
    got = [(c["index"], c["message"]["content"], c["finish_reason"]) for c in body["choices"]]
    assert got == [(0, "one", "stop"), (1, "three", "length")]
    assert body["usage"]["completion_tokens"] == 8


def test_logprobs_with_candidates(scripted: Scene):
    rows = [[[72, -0.1, 1], [73, -2.0, 2]]]
    body = chat(scripted.alice, step([72], "stop", rows=rows), logprobs=True, top_logprobs=2).json()
    entry = body["choices"][0]["logprobs"]["content"][0]
    assert (entry["token"], entry["bytes"]) == ("H", [72])
    assert [(t["token"], t["logprob"]) for t in entry["top_logprobs"]] == [("H", -0.1), ("I", -2.0)]


def test_a_tenants_default_applies_and_a_request_overrides_it(scripted: Scene):
    """Bob's tenant writes token ids by default; explicit false beats it, null does not."""


    def token(tenant, **fields):
        body = chat(tenant, step([72], "stop"), logprobs=True, **fields).json()
        return body["choices"][0]["logprobs"]["content"][0]["token"]

    assert token(scripted.bob) == "token_id:72"
    assert token(scripted.bob, return_tokens_as_token_ids=None) == "token_id:72"
    assert token(scripted.bob, return_tokens_as_token_ids=False) == "H"
    assert token(scripted.alice) == "H"
    assert token(scripted.alice, return_tokens_as_token_ids=True) == "token_id:72"


def test_a_request_can_ask_where_its_values_came_from(scripted: Scene):
    response = chat(scripted.bob, step([72], "stop"), temperature=0, headers={"x-tokenry-explain": "1"})
    effective = json.loads(response.headers["x-tokenry-effective"])
    assert effective["temperature"] == {"value": 0.0, "source": "request"}
    assert effective["return_tokens_as_token_ids"] == {"value": True, "source": "tenant"}
    assert effective["top_p"] == {"value": 1.0, "source": "builtin"}
    assert "x-tokenry-effective" not in chat(scripted.bob, step([72], "stop")).headers


def test_an_engine_error_is_told(scripted: Scene):
    response = chat(scripted.alice, step([72]), step([], "error"))
    assert (response.status_code, response.json()["error"]["type"]) == (500, "InternalServerError")
    chunks, done = events(scripted.alice, step([72], wait_ms=20), step([], "error", wait_ms=20))
    assert done
    assert chunks[-1]["error"]["code"] == 500


BAD = [
    ({"messages": []}, 400, "messages"),
    ({"messages": "hi"}, 400, "body.messages"),
    ({"messages": [{"content": "no role"}]}, 400, None),
    ({"model": "nope"}, 404, "model"),
    ({"temperature": "hot"}, 400, "body.temperature"),
    ({"temperature": 3}, 400, "temperature"),
    ({"temperature": -0.1}, 400, "temperature"),
    ({"top_p": 0}, 400, "top_p"),
    ({"top_p": 1.1}, 400, "top_p"),
    ({"top_k": -2}, 400, "top_k"),
    ({"min_p": 2}, 400, "min_p"),
    ({"presence_penalty": 3}, 400, "presence_penalty"),
    ({"frequency_penalty": -3}, 400, "frequency_penalty"),
    ({"repetition_penalty": 0}, 400, "repetition_penalty"),
    ({"n": 0}, 400, "n"),
    ({"n": 2, "temperature": 0}, 400, "n"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_tokens": 1.5}, 400, "body.max_tokens"),
    ({"max_tokens": 10**6}, 400, "max_tokens"),
    ({"seed": 2**70}, 400, None),
    ({"stop": ""}, 400, "stop"),
    ({"stop": 5}, 400, "body.stop"),
    ({"logprobs": "yes"}, 400, "body.logprobs"),
    ({"top_logprobs": 2}, 400, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, 400, None),
    ({"stream": False, "stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"stream": "true"}, 400, "body.stream"),
    ({"return_tokens_as_token_ids": "true"}, 400, "body.return_tokens_as_token_ids"),
    ({"return_tokens_as_token_ids": 1}, 400, "body.return_tokens_as_token_ids"),
    ({"logit_bias": {"x": 1}}, 400, "logit_bias"),
    ({"logit_bias": {"9999": 1}}, 400, None),
    ({"stop_token_ids": [9999]}, 400, None),
    ({"allowed_token_ids": [9999]}, 400, None),
    ({"tools": []}, 400, "tools"),
    ({"tool_choice": "required"}, 400, "tool_choice"),
    ({"response_format": {"type": "nonsense"}}, 400, None),
    ({"use_beam_search": True}, 400, "use_beam_search"),
    ({"functions": []}, 400, "functions"),
    ({"messages": [{"role": "user", "content": "x" * 600}]}, 400, None),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}, 400, None),
    ({"vllm_xargs": {"script": "not json"}}, 400, None),
    ({"vllm_xargs": {"script": [{"ids": "x"}]}}, 400, None),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "status", "param"), BAD, ids=[json.dumps(fields)[:60] for fields, _, _ in BAD])
@pytest.mark.parametrize("streaming", [False, True], ids=["json", "sse"])
def test_bad_input_is_named_and_the_next_request_works(scripted: Scene, fields, status, param, streaming):
    body = {"messages": HI, "stream": streaming, **fields}
    response = scripted.alice.http.post(PATH, json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert error["code"] == status
    assert error["message"]
    if param is not None:
        assert error["param"] == param
    assert chat(scripted.alice, step([72], "stop")).status_code == 200


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff\xfe", b'{"messages": NaN}', b"[" * 5000, b'{"a":' * 5000])
def test_a_body_that_is_no_object(scripted: Scene, raw):
    response = scripted.alice.http.post(PATH, content=raw, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "Bad Request"


def test_another_content_type(scripted: Scene):
    response = scripted.alice.http.post(PATH, content=b"{}", headers={"content-type": "text/plain"})
    assert response.status_code == 400
    assert scripted.alice.http.get(PATH).status_code == 405


def test_a_huge_body_is_refused_before_it_is_read(scripted: Scene):
    def pieces():
        for _ in range(200):
            yield b" " * 1_000_000

    sized = scripted.alice.http.post(PATH, content=b" " * 40_000_000, headers={"content-type": "application/json"})
    chunked = scripted.alice.http.post(PATH, content=pieces(), headers={"content-type": "application/json"})
    for response in (sized, chunked):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"
    assert chat(scripted.alice, step([72], "stop")).status_code == 200
