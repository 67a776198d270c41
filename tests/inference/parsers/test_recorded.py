"""vLLM's recorded answers of its hermes parser, delta by delta."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from inference.detokenize import Detokenizer
from inference.parsers import Parser, assemble, finish_reason, make_parser
from inference.tokenizer import Tokenizer

TESTS = Path(__file__).parents[2]
TOKENIZER = Tokenizer.load(TESTS / "fixtures/smollm2")


def recorded(name: str) -> Any:
    return json.loads((TESTS / "contract/vllm" / name).read_text())


def reader(chat_request: dict[str, Any]) -> Parser:
    fields = {key: chat_request[key] for key in ("tools", "tool_choice") if key in chat_request}
    return make_parser(None, "hermes", tokenizer=TOKENIZER, prompt_token_ids=[], **fields)


def texts(pieces: Iterable[list[int]]) -> Iterator[str]:
    detokenizer = Detokenizer(TOKENIZER, skip_special_tokens=False)
    yield from map(detokenizer.feed, pieces)


def without_ids(calls: Any) -> Any:
    """All but the ids, which are random: of these only whether there is one."""
    return [{**call, "id": call.get("id") is not None} for call in calls or []]


@pytest.mark.parametrize("name", ["plain_text", "text_then_two_calls", "tool_call_1tok", "tool_call_4tok"])
def test_stream(name: str) -> None:
    exchanges = recorded(f"derender_chat_stream/parser_{name}.json")["exchanges"]
    chunks = [exchange["request"]["generate_chunk"]["choices"][0] for exchange in exchanges]
    parser = reader(exchanges[0]["request"]["chat_request"])
    for exchange, chunk, text in zip(exchanges, chunks, texts(chunk["token_ids"] for chunk in chunks), strict=True):
        delta = parser.feed(text, chunk["token_ids"], chunk["finish_reason"] is not None)
        choice = exchange["response"]["chunk"]["choices"][0]
        assert (delta.reasoning, delta.content) == (choice["delta"]["reasoning"], choice["delta"]["content"])
        assert without_ids(to_builtins(delta.tool_calls)) == without_ids(choice["delta"].get("tool_calls"))
        state = exchange["response"]["stream_state"]
        assert len(parser.tool_call_ids) == len(state["last_tool_call_ids"])
        reason = finish_reason(chunk["finish_reason"], called=bool(parser.tool_call_ids), tool_choice=None)
        assert reason == choice["finish_reason"]


@pytest.mark.parametrize("name", ["bad_json_call", "named", "no_tool_call", "text_and_tool_call", "tool_call", "tools_absent_in_request"])
def test_whole(name: str) -> None:
    exchange = recorded(f"derender_chat/parser_{name}.json")
    request, choice = exchange["request"], exchange["response"]["choices"][0]
    ids = request["generate_response"]["choices"][0]["token_ids"]
    (text,) = texts([ids])
    tool_choice = request["chat_request"].get("tool_choice")
    message = to_builtins(assemble([reader(request["chat_request"]).feed(text, ids, True)], tool_choice))
    assert without_ids(message.pop("tool_calls", None)) == without_ids(choice["message"].pop("tool_calls", None))
    assert message == choice["message"]
