"""The parser cases of the contract, on tokenizer t1: each exact answer, whole and in pieces."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.inference.parsers.reading import CALL, NAMED, P1, calls, chunkings, deltas, ids_of, parser, read, texts

PARIS = ("get_weather", '{"city": "Paris"}')
TOOL_ID = r"chatcmpl-tool-[0-9a-f]{16}"
E4 = "r</think>" + CALL


def in_every_chunking(text: str, node: str = "RP", **fields: Any) -> list[tuple[str | None, str | None, list[Any], str | None]]:
    """The distinct (reasoning, content, calls, finish reason) over all chunkings: one, if they agree."""
    found = []
    for pieces in chunkings(ids_of(text)).values():
        message, finish = read(text, node, pieces=pieces, **fields)
        summary = (message.reasoning, message.content, calls(message), finish)
        found += [summary] if summary not in found else []
    return found


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        pytest.param("<think>ab</think>ok", "ab", "ok", id="E1 split"),
        pytest.param("plain", "plain", None, id="E2 no markers"),
        pytest.param("x</think>", "x", None, id="E3 nothing after"),
        pytest.param("<think>思考</think>你好😀", "思考", "你好😀", id="E21 characters of many tokens"),
        pytest.param("</think>y", None, "y", id="nothing before"),
        pytest.param("x</think>y</think>z", "x", "y</think>z", id="a second end stays"),
        pytest.param("x<think>y</think>z", "xy", "z", id="a late start is not shown"),
        pytest.param("</think> \n", None, " \n", id="blank answer"),
    ],
)
def test_reasoning_and_content(text: str, reasoning: str | None, content: str | None) -> None:
    assert in_every_chunking(text) == [(reasoning, content, [], "stop")]


def test_e4_e5_e24_tool_call() -> None:
    assert in_every_chunking(E4) == [("r", None, [PARIS], "tool_calls")]
    message, _ = read(E4)
    call = message.tool_calls[0]
    assert call.type == "function"
    assert re.fullmatch(TOOL_ID, call.id)


def test_e6_arguments_only_grow() -> None:
    sent = ""
    for delta in deltas(parser(), chunkings(ids_of(E4))["by 1"]):
        for part in delta.tool_calls:
            sent += part.function.arguments or ""
        assert PARIS[1].startswith(sent)
    assert json.loads(sent) == {"city": "Paris"}


def test_e7_the_id_comes_once_and_stays() -> None:
    reader = parser()
    states, sent = [], []
    for text in texts([[i] for i in ids_of(E4)]):
        delta = reader.feed(text)
        states.append(reader.tool_call_ids)
        sent += [part.id for part in delta.tool_calls if part.id]
    first = states.index(sent)
    assert len(sent) == 1
    assert states == [[]] * first + [sent] * (len(states) - first)


def test_e7_a_pinned_id_is_used_again() -> None:
    two = CALL + CALL
    message, _ = read("</think>" + two, tool_call_ids=["chatcmpl-tool-00"])
    assert message.tool_calls[0].id == "chatcmpl-tool-00"
    assert re.fullmatch(TOOL_ID, message.tool_calls[1].id)


def test_e8_content_before() -> None:
    assert in_every_chunking("</think>Sure. " + CALL) == [(None, "Sure. ", [PARIS], "tool_calls")]
    assert in_every_chunking("</think> \n" + CALL) == [(None, None, [PARIS], "tool_calls")]


def test_e10_malformed() -> None:
    bad = "<tool_call>{not json</tool_call>"
    assert in_every_chunking("</think>" + bad) == [(None, bad, [], "stop")]


def test_e12_cut_by_length() -> None:
    cut = E4.removesuffix('ris"}}\n</tool_call>')
    assert in_every_chunking(cut, engine_reason="length") == [("r", None, [("get_weather", '{"city": "Pa')], "length")]


def test_e14_named() -> None:
    assert in_every_chunking("</think>" + CALL, tool_choice=NAMED) == [(None, "", [PARIS], "stop")]
    bare = '{"city": "Paris"}'
    assert in_every_chunking("</think>" + bare, tool_choice=NAMED) == [(None, bare, [], "stop")]


def test_e15_required() -> None:
    assert in_every_chunking("</think>" + CALL, tool_choice="required") == [(None, "", [PARIS], "tool_calls")]
    assert in_every_chunking("</think>nothing like that", tool_choice="required") == [(None, "nothing like that", [], "stop")]


def test_e16_none() -> None:
    assert in_every_chunking(E4, tool_choice="none") == [("r", CALL, [], "stop")]


def test_no_tools_no_calls() -> None:
    assert in_every_chunking(E4, tools=None) == [("r", CALL, [], "stop")]
    assert in_every_chunking(E4, enable_auto_tool_choice=False) == [("r", CALL, [], "stop")]
    assert in_every_chunking(E4, enable_auto_tool_choice=False, tool_choice=NAMED) == [("r", "", [PARIS], "stop")]


def test_e17_false_alarm() -> None:
    message, _ = read("", pieces=[ids_of("</think>a <tool"), ids_of("box> b")])
    assert (message.content, calls(message)) == ("a <toolbox> b", [])


def test_e19_the_prompt_decides() -> None:
    assert in_every_chunking("x</think>y", prompt=[*P1, 259, 10]) == [("x", "y", [], "stop")]
    assert in_every_chunking("y", prompt=[*P1, 259, 260]) == [(None, "y", [], "stop")]
    assert in_every_chunking("y", prompt=[*P1, 259, 260, 259]) == [("y", None, [], "stop")]


def test_e21_no_replacement_characters() -> None:
    pieces = chunkings(ids_of("<think>思考</think>你好😀"))["by 1"]
    assert not any("\ufffd" in (delta.content or "") + (delta.reasoning or "") for delta in deltas(parser(), pieces))


def test_e22_hidden_reasoning() -> None:
    assert in_every_chunking(E4, include_reasoning=False) == [(None, None, [PARIS], "tool_calls")]


def test_e23_unicode_stays() -> None:
    text = '</think><tool_call>\n{"name": "get_weather", "arguments": {"x": "é"}}\n</tool_call>'
    assert in_every_chunking(text) == [(None, None, [("get_weather", '{"x": "é"}')], "tool_calls")]


def test_e25_llama3_json() -> None:
    one = '{"name":"get_weather","parameters":{"city":"Paris"}}'
    call = ("get_weather", '{"city":"Paris"}')
    assert in_every_chunking("<|python_tag|>" + one, "L3") == [(None, None, [call], "tool_calls")]
    assert in_every_chunking('{"a":1}', "L3") == [(None, '{"a":1}', [], "stop")]
    assert in_every_chunking(f"<|python_tag|>{one}; {one}", "L3") == [(None, None, [call, call], "tool_calls")]


def test_e27_qwen3_xml() -> None:
    call = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    assert in_every_chunking("</think>" + call, "QX") == [(None, None, [PARIS], "tool_calls")]
    assert in_every_chunking("r" + call, "QX") == [("r", None, [PARIS], "tool_calls")]


def test_only_the_first_call_without_parallel_calls() -> None:
    two = "</think>" + CALL + CALL
    assert in_every_chunking(two) == [(None, None, [PARIS, PARIS], "tool_calls")]
    assert in_every_chunking(two, parallel_tool_calls=None) == [(None, None, [PARIS, PARIS], "tool_calls")]
    assert in_every_chunking(two, parallel_tool_calls=False) == [(None, None, [PARIS], "tool_calls")]
