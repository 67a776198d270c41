"""Our platform with a real vLLM as its node: a tenant cannot tell it from one of ours."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conftest import Scene
from tests.interchange.service import CHAT, COMPLETIONS, GENERATE, Kind, Reading, Service, assert_same, read

FRANCE = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 16, "temperature": 0}
EMOJI = {"messages": [{"role": "user", "content": "Repeat exactly: 🎉🎊 日本語"}], "max_tokens": 24, "temperature": 0}
PROMPT = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0}
REQUESTS: list[tuple[Kind, dict[str, Any]]] = [
    (CHAT, FRANCE),
    (CHAT, {**FRANCE, "logprobs": True, "top_logprobs": 3}),
    (CHAT, {**EMOJI, "logprobs": True, "top_logprobs": 2}),
    (CHAT, {**FRANCE, "stop": [" France"]}),
    (CHAT, {**FRANCE, "logprobs": True, "return_tokens_as_token_ids": True}),
    (CHAT, {**FRANCE, "presence_penalty": 0.5, "repetition_penalty": 1.1, "logit_bias": {"260": -50}}),
    (COMPLETIONS, PROMPT),
    (COMPLETIONS, {**PROMPT, "logprobs": 3}),
]


@pytest.fixture
def on_ours(real: Scene) -> Service:
    return Service("our platform on our node", real.alice.http)


@pytest.fixture
def on_theirs(on_vllm: Scene) -> Service:
    return Service("our platform on vLLM", on_vllm.alice.http)


@pytest.mark.parametrize(("kind", "request_"), REQUESTS)
def test_answers_are_those_of_our_own_node(kind: Kind, request_: dict[str, Any], on_theirs: Service, on_ours: Service) -> None:
    expected = read(on_ours.post(kind.path, request_))
    assert_same(read(on_theirs.post(kind.path, request_)), expected)
    streamed = {**request_, "stream": True, "stream_options": {"include_usage": True}}
    assert_same(read(*on_theirs.events(kind.path, streamed)), expected)


def test_a_tenants_default_holds_on_a_vllm_node(on_vllm: Scene) -> None:
    """Bob's default is token ids; vLLM never hears of it, since the platform writes the strings."""
    bob = Service("Bob", on_vllm.bob.http)
    ids = read(bob.post(CHAT.path, {**FRANCE, "logprobs": True}))
    words = read(bob.post(CHAT.path, {**FRANCE, "logprobs": True, "return_tokens_as_token_ids": False}))
    assert all(token.startswith("token_id:") for token, _ in ids.tokens)
    assert ids.text == words.text == "".join(token for token, _ in words.tokens if token != "<|im_end|>")


def test_the_token_door_is_proxied(on_theirs: Service, on_ours: Service) -> None:
    body = {"token_ids": [504, 3575, 282, 4649, 314], "sampling_params": {"max_tokens": 8, "temperature": 0, "logprobs": 2}}
    theirs, ours = on_theirs.post(GENERATE, body), on_ours.post(GENERATE, body)
    assert theirs["choices"][0]["token_ids"] == ours["choices"][0]["token_ids"]
    ids = [[candidate["token_id"] for candidate in entry["top_logprobs"]] for entry in theirs["choices"][0]["logprobs"]["content"]]
    assert ids == [[candidate["token_id"] for candidate in entry["top_logprobs"]] for entry in ours["choices"][0]["logprobs"]["content"]]


def test_several_choices_come_back_from_vllm(on_theirs: Service) -> None:
    answer = on_theirs.post(CHAT.path, {**FRANCE, "temperature": 0.8, "seed": 5, "n": 3})
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] > 3


def test_a_client_that_leaves_frees_vllm(on_vllm: Scene) -> None:
    long = {**FRANCE, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with on_vllm.alice.http.stream("POST", CHAT.path, json=long) as answer:
        lines = answer.iter_lines()  # kept: a dropped iterator closes the stream
        next(lines)
        assert wait_for_running(on_vllm, 1)
    assert wait_for_running(on_vllm, 0)


def test_a_stop_string_ends_the_work_at_vllm(on_vllm: Scene) -> None:
    """A tokens-only vLLM refuses stop strings, and none is sent to it: the platform finds them and aborts."""
    reading: Reading = read(Service("Alice", on_vllm.alice.http).post(CHAT.path, {**FRANCE, "max_tokens": 1500, "stop": ["Paris"]}))
    assert reading.finish_reason == "stop"
    assert "Paris" not in reading.text
    assert wait_for_running(on_vllm, 0)


def wait_for_running(scene: Scene, wanted: int, seconds: float = 20) -> bool:
    """Whether vLLM comes to say that so many requests run."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lines = scene.node.node_client.get("/metrics").text.splitlines()
        running = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running"))
        if running == wanted:
            return True
        time.sleep(0.1)
    return False
