"""A session and the stateless calls are one stream: the same chunks and, whenever it is asked for, the same state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.derender import Session, open_session
from inference.errors import BadRequest
from inference.protocol import codec
from inference.protocol.derender import OpenSession
from inference.protocol.generate import TokensChunk
from inference.render import chat_settings
from inference.resolve import resolve
from tests.inference.random_ids import ids_of, lps_of, quick
from tests.inference.samples import HI, P1, b, chunk_call, model

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
CALL = [*b('{"name": "look_up", "arguments": {"key'), *b('": "Gr'), *b('üße \\" 🙂'), *b('"}}')]
MARKUP = [[i] for i in range(256, model("RP").vocab_size)] + [b("\n"), b("so it is "), b("🙂"), CALL, [195], []]


def session(name: str, request: dict[str, Any], prompt: list[int], **state: Any) -> Session:
    asked = codec.convert(OpenSession, {"chat_request": request, "prompt_token_ids": prompt, **state})
    assert asked.chat_request is not None
    return open_session(asked, model(name), resolve(chat_settings(asked.chat_request), model(name).layers))


def chunk(ids: list[int], logprobs: Any = None, finish: str | None = None) -> TokensChunk:
    choice = {"index": 0, "token_ids": ids, "logprobs": logprobs, "finish_reason": finish}
    return codec.convert(TokensChunk, {"request_id": "r", "choices": [choice]})


def told(shape: Any) -> Any:
    """As JSON, without what is random: calls' ids, and the time."""
    body = json.loads(codec.encode(shape))
    body.pop("created", None)
    body["last_tool_call_ids"] = len(body.get("last_tool_call_ids", ()))
    for choice in body.get("choices", ()):
        for call in choice["delta"].get("tool_calls", ()):
            call["id"] = call["id"] is not None
    return body


@st.composite
def pieces_of(draw: st.DrawFn, name: str) -> list[list[int]]:
    """Mostly single tokens, as nodes send them."""
    written = st.lists(st.sampled_from(MARKUP), max_size=8).map(lambda parts: [i for part in parts for i in part])
    ids = draw(written if name == "RP" else ids_of(name))
    pieces, at = [], 0
    while at < len(ids):
        size = draw(st.sampled_from([1, 1, 1, 1, 1, 0, 2, 5]))
        pieces.append(ids[at : at + size])
        at += size
    return pieces


@pytest.mark.parametrize("name", ["RP", "R2", "smollm2"])
@quick
@given(data=st.data(), ids=st.booleans(), offsets=st.booleans(), reasoning=st.booleans())
def test_chunks_and_states_are_those_of_the_stateless_calls(
    name: str, data: st.DataObject, ids: bool, offsets: bool, reasoning: bool
) -> None:
    request = {"messages": HI, "tools": TOOLS, "return_token_ids": ids, "return_output_offsets": offsets, "include_reasoning": reasoning}
    prompt = P1 if name == "RP" else [300, 301]
    alive, state = session(name, request, prompt), None
    pieces = data.draw(pieces_of(name))
    for number, piece in enumerate(pieces):
        logprobs = lps_of(piece, 256) if piece and data.draw(st.integers(0, 5)) == 0 else None
        finish = "stop" if number == len(pieces) - 1 else None
        shown = alive.feed(chunk(piece, logprobs, finish))
        call = chunk_call(model(name), piece, state, logprobs, finish, chat_request=request, prompt_token_ids=prompt)
        state = call["stream_state"]
        assert told(shown) == told(call["chunk"])
        if data.draw(st.booleans()):
            assert told(alive.states[0]) == told(state)
    if pieces:
        assert told(alive.states[0]) == told(state)


@pytest.mark.parametrize("told_in_between", [False, True])
def test_a_stream_ends_where_the_model_does(told_in_between: bool) -> None:
    """Token by token, too, and whether or not the state was asked for on the way; what is refused moves nothing."""
    left = model("RP").max_model_len - len(P1)
    alive = session("RP", {"messages": HI}, P1)
    for number in range(left):
        alive.feed(chunk([65]))
        if told_in_between and number % 7 == 0:
            assert len(alive.states[0].output_token_ids) == number + 1
    with pytest.raises(BadRequest, match="max_model_len"):
        alive.feed(chunk([65]))
    assert alive.states[0].output_token_ids == [65] * left
    assert alive.states[0].output_chunk_lens == [1] * left


def test_a_carried_state_that_nothing_was_fed_to_stays_as_it_is() -> None:
    state = chunk_call(model("RP"), b("so"), chat_request={"messages": HI}, prompt_token_ids=P1)["stream_state"]
    assert told(session("RP", {"messages": HI}, P1, stream_state=state).states[0]) == told(state)


def test_chunks_of_one_session_carry_one_time() -> None:
    alive = session("RP", {"messages": HI}, P1)
    assert len({alive.feed(chunk([65])).created for _ in range(3)}) == 1
