"""Section D of the case list, and C5 and C23: one call per chunk, with nothing kept between calls."""

from __future__ import annotations

from typing import Any

import pytest

from inference.errors import ApiError, BadRequest
from tests.inference.samples import (
    ABSENT,
    BASE,
    DECODED,
    HI,
    P1,
    PLACEHOLDERS,
    b,
    chunk_call,
    chunked,
    derendered,
    given,
    matrix,
    model,
    plain_lps,
    response,
    whole_chat,
)

USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


def choice(body: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = body["chunk"]["choices"][0]
    return made


def contents(bodies: list[dict[str, Any]]) -> list[Any]:
    return [choice(body)["delta"]["content"] for body in bodies]


def test_d1_the_role_comes_once() -> None:
    first, second = chunked(model(), [[72], [105]])
    assert choice(first)["delta"] == {"role": "assistant", "content": "H", "reasoning": None}
    assert choice(second)["delta"] == {"role": None, "content": "i", "reasoning": None}


def test_d2_the_window_stays_tiny() -> None:
    bodies = chunked(model(), [[72], [195], [169, 33]], prompt_token_ids=P1)
    assert contents(bodies) == ["H", None, "é!"]
    states = [body["stream_state"] for body in bodies]
    assert [s["prev_tokens"] for s in states] == [["H"], ["H", "Ã"], ["!"]]
    assert [(s["read_offset"], s["prefix_offset"], s["role_sent"]) for s in states] == [(1, 0, True)] * 3


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_d3_any_chunking_gives_the_same_text(size: int) -> None:
    text = "Hi 日本 😀!"
    ids = b(text)
    bodies = chunked(model(), [ids[i : i + size] for i in range(0, len(ids), size)])
    assert "".join(part for part in contents(bodies) if part) == text == whole_chat(model(), ids)["choices"][0]["message"]["content"]


def test_d4_a_usage_chunk_first_leaves_the_role_for_later() -> None:
    first = derendered(model(), {"stream": True, "generate_chunk": {"request_id": "r", "choices": [], "usage": USAGE}})
    assert (first["chunk"]["choices"], first["stream_state"]["role_sent"]) == ([], False)
    assert first["chunk"]["usage"]["total_tokens"] == 12
    assert choice(chunk_call(model(), [72], first["stream_state"]))["delta"]["role"] == "assistant"


@pytest.mark.parametrize(("prompt_tokens", "total"), [(7, 9), (ABSENT, 12)])
def test_d5_the_requests_prompt_count_goes_before_the_chunks(prompt_tokens: Any, total: int) -> None:
    body = {"stream": True, "generate_chunk": response([72], finish=None, usage=USAGE), "prompt_tokens": prompt_tokens}
    assert derendered(model(), given(body))["chunk"]["usage"]["total_tokens"] == total
    assert chunk_call(model(), [72])["chunk"]["usage"] is None


@pytest.mark.parametrize("ids", [[], None])
def test_d6_an_end_without_tokens(ids: Any) -> None:
    made = choice(chunk_call(model(), ids, finish="length"))
    assert (made["delta"]["content"], made["finish_reason"]) == (None, "length")


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_d7_one_choice_at_a_time(kind: str) -> None:
    two = {"choices": response([72])["choices"] * 2}
    with pytest.raises(BadRequest, match="at most one choice"):
        derendered(model(), {"stream": True, "generate_chunk": two}, kind)


def test_d8_two_choices_with_a_state_each() -> None:
    states: dict[int, Any] = {0: None, 1: None}
    texts = {0: "", 1: ""}
    roles = []
    for pair in zip(b("abc"), b("xyz"), strict=True):
        for index, token in enumerate(pair):
            body = chunk_call(model(), [token], states[index], index=index)
            states[index] = body["stream_state"]
            texts[index] += choice(body)["delta"]["content"]
            roles.append(choice(body)["delta"]["role"])
    assert texts == {0: "abc", 1: "xyz"}
    assert roles == ["assistant", "assistant", None, None, None, None]


BAD_STATES: list[dict[str, Any]] = [
    {"prefix_offset": -1},
    {"read_offset": -1},
    {"prev_tokens": ["a"] * 1025},
    {"logprob_context_token_ids": [1] * 5},
    {"logprob_text_offset": -1},
    {"output_token_ids": [1, 2, 3], "output_chunk_lens": [2]},
    {"output_token_ids": [1, 2], "output_chunk_lens": [0, 2]},
]


@pytest.mark.parametrize("fields", BAD_STATES, ids=["-".join(fields) for fields in BAD_STATES])
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_d10_a_malformed_state_is_the_clients_error(fields: dict[str, Any], kind: str) -> None:
    state = {"prev_tokens": ["a"], "prefix_offset": 0, "read_offset": 1, "role_sent": True, **fields}
    with pytest.raises(ApiError) as refused:
        chunk_call(model(), [72], state, kind=kind)
    assert refused.value.status == 400


@pytest.mark.parametrize("state", [{"prev_tokens": ["a"] * 1024}, {}, {"prev_tokens": ["a"], "prefix_offset": 5, "read_offset": 9},
                                   {"prev_tokens": ["日本"], "read_offset": 1}, {"foo": 1}])
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_d10_an_odd_state_only_hurts_whoever_sends_it(state: dict[str, Any], kind: str) -> None:
    chunk_call(model(), [72], state, kind=kind)


@pytest.mark.parametrize("body", [{"stream": True}, {"stream": True, "generate_response": response([72])},
                                  {"stream": None, "generate_response": response([72])},
                                  {"stream": True, "generate_chunk": response([72], output_mode="text")}])
def test_d12_a_body_of_neither_shape_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        derendered(model(), body)
    assert refused.value.status == 400


def test_d13_prompt_history_and_chunk_together_are_bounded() -> None:
    state = {"role_sent": True, "output_token_ids": [97] * 200, "output_chunk_lens": [200]}
    fields: dict[str, Any] = {"chat_request": {"messages": HI}, "prompt_token_ids": [97] * 300}
    chunk_call(model("RP"), [97] * 12, state, **fields)
    with pytest.raises(BadRequest, match="max_model_len"):
        chunk_call(model("RP"), [97] * 13, state, **fields)


@pytest.mark.parametrize("ids", [[97], ABSENT])
def test_d14_a_parser_needs_request_and_prompt(ids: Any) -> None:
    """On the usage chunk too: a client that forgets them should find out at once."""
    chunk = {"choices": [], "usage": USAGE} if ids is ABSENT else response(ids)
    with pytest.raises(BadRequest, match="chat_request"):
        derendered(model("RP"), {"stream": True, "generate_chunk": chunk, "prompt_token_ids": P1})
    with pytest.raises(BadRequest, match="prompt_token_ids"):
        derendered(model("RP"), {"stream": True, "generate_chunk": chunk, "chat_request": {"messages": HI}})


def test_d17_the_prompt_is_needed_once() -> None:
    first = chunk_call(model("R2"), [268], prompt_token_ids=[1, 268, 299])
    second = chunk_call(model("R2"), [276], first["stream_state"])
    assert contents([first, second]) == [" Hello", " there"]


def test_d20_ids_come_back_chunk_by_chunk() -> None:
    bodies = chunked(model(), [[72], [105, 33]], chat_request={"messages": HI, "return_token_ids": True})
    assert [choice(body)["token_ids"] for body in bodies] == [[72], [105, 33]]


@pytest.mark.parametrize(("to", "override", "placeholders"), matrix())
def test_c5_the_override_holds_call_by_call(to: str, override: Any, placeholders: bool) -> None:
    request = given({"messages": HI, "logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": override})
    bodies = chunked(model(to), [[195], [169]], BASE, chat_request=request)
    assert [choice(body)["logprobs"]["content"] for body in bodies] == [[e] for e in (PLACEHOLDERS if placeholders else DECODED)]
    assert bodies[0]["stream_state"]["logprob_context_token_ids"] == [195]


@pytest.mark.parametrize("override", [True, False])
def test_c23_hidden_reasoning_does_not_leak(override: bool) -> None:
    ids = [*b("a"), 260, *b("b")]
    asked = {"logprobs": True, "include_reasoning": False, "return_token_ids": True, "return_tokens_as_token_ids": override}
    request = {"messages": HI, **asked}
    bodies = chunked(model("RP"), [[i] for i in ids], plain_lps(ids), chat_request=request, prompt_token_ids=P1)
    assert [(choice(body)["logprobs"], choice(body)["token_ids"]) for body in bodies] == [(None, None)] * 3
    assert contents(bodies) == [None, None, "b"]
    assert [choice(body)["delta"]["reasoning"] for body in bodies] == [None] * 3


def test_context_goes_on_past_chunks_without_logprobs() -> None:
    first = chunk_call(model(), [*b("ab"), 195])
    second = chunk_call(model(), [169], first["stream_state"], plain_lps([169]))
    assert choice(second)["logprobs"]["content"][0]["token"] == "é"


def test_offsets_of_completions_go_on_from_call_to_call() -> None:
    ids = [*b("aé"), 258, *b(" b")]
    whole = derendered(model(), {"generate_responses": [response(ids, plain_lps(ids))]}, "completion")["choices"][0]["logprobs"]
    calls = chunked(model(), [[i] for i in ids], plain_lps(ids), "completion")
    assert [offset for body in calls for offset in choice(body)["logprobs"]["text_offset"]] == whole["text_offset"]
    assert [body["stream_state"]["role_sent"] for body in calls] == [False] * len(ids)


def test_a_parsers_state_holds_all_ids_and_no_window() -> None:
    bodies = chunked(model("RP"), [b("ab"), [260], b("c")], chat_request={"messages": HI}, prompt_token_ids=P1)
    state = bodies[-1]["stream_state"]
    assert (state["output_token_ids"], state["output_chunk_lens"], state["prev_tokens"]) == ([*b("ab"), 260, *b("c")], [2, 1, 1], [])
