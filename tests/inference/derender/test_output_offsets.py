"""Where every token went: places, bytes and parts, the same in one piece and in many, on every path."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.derender import ChatAnswer
from inference.protocol import codec
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.generate import GenerateChunk, GenerateChunkChoice
from inference.render import chat_settings
from inference.resolve import resolve
from tests.inference.samples import HI, P1, b, chat_render, chunk_call, derendered, model, response

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALL = [261, *b('\n{"name": "f", "arguments": {"a": "ü"}}\n'), 262]
IDS = [*b("Grüße"), 260, *b("Hi 🙂"), *CALL, *CALL, 258]
ASKED: dict[str, Any] = {"messages": HI, "tools": TOOLS, "return_output_offsets": True}


def coupled(ids: list[int], sizes: list[int], finish: str = "stop", **fields: Any) -> list[dict[str, Any]]:
    request = codec.convert(ChatCompletionRequest, {**ASKED, **fields})
    effective = resolve(chat_settings(request), model("RP").layers)
    rendered = chat_render(model("RP"), **{**ASKED, **fields})
    answer = ChatAnswer(request, effective, model("RP"), rendered, request_id="r", created=0)
    made, at = [], 0
    for size in [*sizes, len(ids)]:
        part, at = ids[at : at + size], at + size
        if part:
            reason = finish if at >= len(ids) else None
            made += answer.feed(0, GenerateChunk(choices=[GenerateChunkChoice(index=0, token_ids=part, finish_reason=reason)]))
    whole = answer.whole() if fields.get("stream") is not True else None
    if whole is not None:
        return json.loads(codec.encode(whole))["choices"][0]["output_offsets"]
    chunks = json.loads(codec.encode(made))
    return [offset for chunk in chunks for offset in chunk["choices"][0]["output_offsets"] or ()]


def check(offsets: list[dict[str, Any]], ids: list[int]) -> None:
    """Every token once, in order, and the bytes are the text's."""
    assert [offset["token_id"] for offset in offsets] == ids
    raw = bytes(byte for offset in offsets for byte in offset["bytes"])
    text = model("RP").tokenizer.decode(ids)
    assert raw == text.encode()
    for offset in offsets:
        assert bytes(offset["bytes"]) in text[offset["start"] : offset["end"]].encode()
    assert all(one["start"] <= other["start"] <= one["end"] for one, other in pairwise(offsets))


def parts(offsets: list[dict[str, Any]]) -> dict[tuple[str, Any], bytes]:
    found: dict[tuple[str, Any], bytes] = {}
    for offset in offsets:
        key = (offset["part"], offset["call"])
        found[key] = found.get(key, b"") + bytes(offset["bytes"])
    return found


def test_every_part() -> None:
    offsets = coupled(IDS, [])
    check(offsets, IDS)
    found = parts(offsets)
    assert found["reasoning", None].decode() == "Grüße"
    assert found["content", None].decode() == "Hi 🙂"
    assert found["tool_call", 0].decode() == found["tool_call", 1].decode() == '{"a": "ü"}'
    assert found["stop", None] == b"<|im_end|>"
    assert found["markup", None].startswith(b"</think><tool_call>")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=60))
def test_in_any_pieces(sizes: list[int]) -> None:
    assert coupled(IDS, sizes, stream=True) == coupled(IDS, [])


PARTS = [b("Hi"), b("é"), b("😀"), b("\n"), b("<tool"), [259], [260], [261], [262], CALL, [0x80], [0xF0, 0x9F], [0xC3], [257], [9999]]
anything = st.lists(st.sampled_from(PARTS), min_size=1, max_size=10).map(lambda parts: [*(i for part in parts for i in part), 258])


@settings(max_examples=50, deadline=None)
@given(anything, st.lists(st.integers(1, 9), max_size=60))
def test_anything_in_any_pieces(ids: list[int], sizes: list[int]) -> None:
    assert coupled(ids, sizes, stream=True) == coupled(ids, [])


@settings(max_examples=50, deadline=None)
@given(anything)
def test_garbage_moves_no_token_into_another_part(ids: list[int]) -> None:
    """What is content by its offsets is the message's content, but for bytes that are no characters, and blanks that a parser drops."""
    body = {"generate_response": response(ids), "chat_request": ASKED, "prompt_token_ids": P1}
    choice = derendered(model("RP"), body)["choices"][0]
    content = parts(choice["output_offsets"]).get(("content", None), b"").decode("utf-8", "replace")
    shown = choice["message"]["content"]
    assert content.replace("\ufffd", "").strip() == ("" if shown is None else shown).replace("\ufffd", "").strip()
    raw = b"".join(bytes(offset["bytes"]) for offset in choice["output_offsets"])
    text = raw.decode("utf-8", "replace")
    for offset in choice["output_offsets"]:
        if bytes(offset["bytes"]).isascii():
            assert text[offset["start"] : offset["end"]].encode() == bytes(offset["bytes"])


def test_a_stop_string_is_the_stop() -> None:
    ids = [260, *b("Hello END")]
    offsets = coupled(ids, [1] * 20, stop=["END"], tools=None)
    check(offsets, ids)
    assert parts(offsets)["stop", None] == b"END"
    assert parts(offsets)["content", None] == b"Hello "


def test_half_a_character_is_shown_nowhere() -> None:
    offsets = coupled([260, 72, 0xF0, 0x9F], [], finish="length")
    assert [offset["part"] for offset in offsets] == ["markup", "content", "markup", "markup"]


def test_hidden_reasoning_is_not_told() -> None:
    request = codec.convert(ChatCompletionRequest, {**ASKED, "include_reasoning": False})
    rendered = chat_render(model("RP"), **ASKED, include_reasoning=False)
    answer = ChatAnswer(request, resolve(chat_settings(request), ()), model("RP"), rendered, request_id="r", created=0)
    answer.feed(0, GenerateChunk(choices=[GenerateChunkChoice(index=0, token_ids=IDS, finish_reason="stop")]))
    assert answer.whole().choices[0].output_offsets is None


@pytest.mark.parametrize("name", ["RP", "R"])
def test_derender_whole_and_in_pieces(name: str) -> None:
    asked = ASKED if name == "RP" else {"messages": HI, "return_output_offsets": True}
    ids = IDS if name == "RP" else [*b("Hi 🙂 ü"), 258]
    body = {"generate_response": response(ids), "chat_request": asked, "prompt_token_ids": P1}
    whole = derendered(model(name), body)["choices"][0]["output_offsets"]
    check(whole, ids)
    for size in (1, 3, 100):
        state, found = None, []
        for start in range(0, len(ids), size):
            finish = "stop" if start + size >= len(ids) else None
            call = chunk_call(model(name), ids[start : start + size], state, None, finish, chat_request=asked, prompt_token_ids=P1)
            state = call["stream_state"]
            found += call["chunk"]["choices"][0]["output_offsets"]
        assert found == whole
    assert "output_offsets" not in derendered(model(name), {**body, "chat_request": {**asked, "return_output_offsets": None}})["choices"][0]
