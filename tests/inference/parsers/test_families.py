"""What each family does with what is odd, broken or unclosed: the decisions of docs/parsers.md, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from inference.parsers import Span, assemble, make_parser
from inference.protocol.chat import ChatMessage
from tests.inference.parsers.reading import P1, T1

SCHEMA = {
    "$defs": {"Unit": {"enum": ["c", "f"]}, "Point": {"type": "object"}},
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "size": {"type": "number"},
        "on": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "list": {"type": "array"},
        "unit": {"$ref": "#/$defs/Unit"},
        "point": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
        "loop": {"anyOf": [{"$ref": "#/properties/loop"}, {"type": "integer"}]},
        "free": {},
    },
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def message(text: str, tool: str | None, reasoning: str | None = None, *, by: int = 1, **fields: Any) -> ChatMessage:
    """One character at a time, unless said otherwise."""
    reader = make_parser(reasoning, tool, tokenizer=T1, prompt_token_ids=P1, tools=TOOLS, **fields)
    pieces = [text[i : i + by] for i in range(0, len(text), by)]
    return assemble([*map(reader.feed, pieces), reader.feed("", (), True)])


def read(text: str, tool: str, **fields: Any) -> tuple[str | None, list[tuple[str | None, str | None]]]:
    """(content, calls), the same by ones, fives and all at once."""
    found = [message(text, tool, by=by, **fields) for by in (1, 5, max(1, len(text)))]
    told = [(each.content, [(call.function.name, call.function.arguments) for call in each.tool_calls or []]) for each in found]
    assert told == told[:1] * 3
    return told[0]


GOOD = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        pytest.param('<tool_call>{"name": "f"}</tool_call>', None, [("f", "{}")], id="no arguments"),
        pytest.param('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', None, [("f", '{"a": 1}')], id="arguments first"),
        pytest.param('<tool_call>{"id": [{}], "name": "f", "arguments": {}, "x": "}"}</tool_call>', None, [("f", "{}")], id="other keys"),
        pytest.param('<tool_call>{"name": "f", "parameters": {}}</tool_call>', None, [("f", "{}")], id="parameters for arguments"),
        pytest.param('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', None, [("f", '"{}"')], id="arguments as a string"),
        pytest.param('<tool_call>{"name": "f", "arguments": null}', None, [("f", "null")], id="null arguments"),
        pytest.param('<tool_call>{"name": "f", "arguments": {"a": 1}', None, [("f", '{"a": 1}')], id="unclosed"),
        pytest.param('<tool_call>{"name": "f", "arguments": {"a": ', None, [("f", '{"a": ')], id="cut in the arguments"),
        pytest.param('<tool_call>{"name": "f', '<tool_call>{"name": "f', [], id="cut in the name"),
        pytest.param('<tool_call>{"name": ""}', '<tool_call>{"name": ""}', [], id="empty name"),
        pytest.param('<tool_call>{"name": 5}', '<tool_call>{"name": 5}', [], id="name of another type"),
        pytest.param('<tool_call>{"name": "\\ud83d"}', '<tool_call>{"name": "\\ud83d"}', [], id="name that is no text"),
        pytest.param('<tool_call>{"name": "\\u0066", "arguments": {}}', None, [("f", "{}")], id="escaped name"),
        pytest.param("<tool_call>", "<tool_call>", [], id="marker alone"),
        pytest.param(" \n", " \n", [], id="blank without a call"),
        pytest.param(" <tool_call>x", " <tool_call>x", [], id="blank before what is no call"),
        pytest.param(f"<tool_call>{GOOD}", "<tool_call>", [("f", '{"a": 1}')], id="marker twice"),
        pytest.param(f"a{GOOD} b {GOOD} c", "a", [("f", '{"a": 1}')] * 2, id="text between and after"),
        pytest.param(f"{GOOD}\n<tool_call>oops</tool_call> so", "<tool_call>oops</tool_call> so", [("f", '{"a": 1}')], id="bad after good"),
        pytest.param(f"<tool_call>oops</tool_call>{GOOD} x", "<tool_call>oops</tool_call>", [("f", '{"a": 1}')], id="good after bad"),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {"a": [1}</tool_call>' + GOOD,
            None,
            [("f", '{"a": [1}'), ("f", '{"a": 1}')],
            id="brackets",
        ),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {"a": 1<tool_call>{"name": "g"}',
            None,
            [("f", '{"a": 1'), ("g", "{}")],
            id="never closed",
        ),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>\\""}}</tool_call>',
            None,
            [("f", '{"a": "</tool_call>\\""}')],
            id="marker in a string",
        ),
    ],
)
def test_hermes(text: str, content: str | None, calls: list[Any]) -> None:
    assert read(text, "hermes") == (content, calls)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        pytest.param('{"name": "f"}', '{"name": "f"}', [], id="a name is not enough"),
        pytest.param('{"arguments": {}}', '{"arguments": {}}', [], id="arguments are not enough"),
        pytest.param('Sure: {"name": "f", "arguments": {}} ok', "Sure: ", [("f", "{}")], id="anywhere"),
        pytest.param('{"a": {"name": "f", "arguments": {}}}', '{"a": {"name": "f", "arguments": {}}}', [], id="not inside another"),
        pytest.param('if (x) { y; } {"name": "f", "arguments": {}}', "if (x) { y; } ", [("f", "{}")], id="after code"),
        pytest.param("<|python_tag|>print(1)", "<|python_tag|>print(1)", [], id="tag before code"),
        pytest.param('{"name": "f", "parameters": {}}; {"a": 1}', '{"a": 1}', [("f", "{}")], id="other JSON after a call"),
        pytest.param('{"name": "f", "parameters": {}, "arguments": {"a": 1}}', None, [("f", "{}")], id="first of both keys"),
        pytest.param('{"parameters": {"a": 1}, "name": "f"}', None, [("f", '{"a": 1}')], id="parameters first"),
        pytest.param(
            '{"name": "f", "parameters": {"a": <|python_tag|>{"name": "f", "parameters": {}}',
            None,
            [("f", '{"a": '), ("f", "{}")],
            id="tag",
        ),
    ],
)
def test_llama3_json(text: str, content: str | None, calls: list[Any]) -> None:
    assert read(text, "llama3_json") == (content, calls)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        pytest.param('[TOOL_CALLS]add[ARGS]{"a": 1}', None, [("add", '{"a": 1}')], id="v11"),
        pytest.param('[TOOL_CALLS]add{"a": 1}', None, [("add", '{"a": 1}')], id="v11 without ARGS"),
        pytest.param('[TOOL_CALLS] add [ARGS] {"a": 1}', None, [("add", '{"a": 1}')], id="v11 with spaces"),
        pytest.param("hi[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]b[ARGS]{}!", "hi", [("a", "{}"), ("b", "{}")], id="v11 twice"),
        pytest.param('[TOOL_CALLS]a[ARGS]{"x": [1[TOOL_CALLS]b[ARGS]{}', None, [("a", '{"x": [1'), ("b", "{}")], id="v11 never closed"),
        pytest.param('[TOOL_CALLS]a[ARGS]{"x": "[TOOL_CALLS]"}', None, [("a", '{"x": "[TOOL_CALLS]"}')], id="v11 marker in a string"),
        pytest.param("[TOOL_CALLS]some words {", "[TOOL_CALLS]some words {", [], id="v11 no name"),
        pytest.param("[TOOL_CALLS]{}", "[TOOL_CALLS]{}", [], id="v11 empty name"),
        pytest.param("[TOOL_CALLS]add", "[TOOL_CALLS]add", [], id="v11 cut in the name"),
        pytest.param("[TOOL_CALLS]add[AR", "[TOOL_CALLS]add[AR", [], id="v11 cut in the marker"),
        pytest.param('[TOOL_CALLS] [{"name": "a", "arguments": {"x": [1]}}]', None, [("a", '{"x": [1]}')], id="array"),
        pytest.param(
            '[TOOL_CALLS][{"name": "a", "arguments": {}} , {"arguments": {}, "name": "b"}] x',
            None,
            [("a", "{}"), ("b", "{}")],
            id="array of two",
        ),
        pytest.param('[TOOL_CALLS][{"name": "a", "arguments": {}', None, [("a", "{}")], id="array unclosed"),
        pytest.param("[TOOL_CALLS][]", "[TOOL_CALLS][]", [], id="array empty"),
        pytest.param("[TOOL_CALLS][1]", "[TOOL_CALLS][1]", [], id="array of something else"),
        pytest.param('[TOOL_CALLS][{"name": "a"}, {"x": 1}] y', '{"x": 1}] y', [("a", "{}")], id="array with a bad item"),
    ],
)
def test_mistral(text: str, content: str | None, calls: list[Any]) -> None:
    assert read(text, "mistral") == (content, calls)


def xml(*parameters: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function=f>\n{body}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("key", "value", "argument"),
    [
        ("text", "12", '"12"'),
        ("text", 'say "é"\n\\', '"say \\"é\\"\\n\\\\"'),
        ("text", "a\n", '"a\\n"'),
        ("text", "", '""'),
        ("text", "null", '"null"'),
        ("count", " 12 ", "12"),
        ("count", "a dozen", '"a dozen"'),
        ("size", "-1.5e3", "-1.5e3"),
        ("size", "NaN", '"NaN"'),
        ("size", "9" * 5000, '"' + "9" * 5000 + '"'),
        ("on", "True", "true"),
        ("on", "yes", '"yes"'),
        ("maybe", "null", "null"),
        ("maybe", "12", '"12"'),
        ("list", '[1, "]"]', '[1, "]"]'),
        ("list", "[1,", '"[1,"'),
        ("list", "[" * 20_000, '"' + "[" * 20_000 + '"'),
        ("unit", "c", '"c"'),
        ("point", '{"x": 1}', '{"x": 1}'),
        ("point", "null", "null"),
        ("loop", "3", "3"),
        ("free", "3", '"3"'),
        ("unknown", "3", '"3"'),
    ],
)
def test_qwen3_xml_types(key: str, value: str, argument: str) -> None:
    assert read(xml((key, value)), "qwen3_xml") == (None, [("f", f'{{"{key}": {argument}}}')])


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        pytest.param(xml(), None, [("f", "{}")], id="no parameters"),
        pytest.param(xml(("text", "a"), ("count", "1")), None, [("f", '{"text": "a", "count": 1}')], id="two"),
        pytest.param(xml() + xml(), None, [("f", "{}")] * 2, id="two calls"),
        pytest.param("hi " + xml()[len("<tool_call>\n") :], "hi ", [("f", "{}")], id="without tool_call"),
        pytest.param(
            "<tool_call><function=f></function><function=g></function></tool_call>", None, [("f", "{}"), ("g", "{}")], id="two in one"
        ),
        pytest.param("<tool_call><function=f></tool_call>", None, [("f", "{}")], id="function unclosed"),
        pytest.param("<tool_call><function=f><parameter=text>a", None, [("f", '{"text": "a')], id="cut in a string"),
        pytest.param("<tool_call><function=f><parameter=count>1", None, [("f", "")], id="cut in a number"),
        pytest.param("<tool_call><function=f", "<tool_call><function=f", [], id="cut in the name"),
        pytest.param("<tool_call><function=>", "<tool_call><function=>", [], id="empty name"),
        pytest.param('<tool_call>{"name": "f"}', '<tool_call>{"name": "f"}', [], id="not this family"),
        pytest.param(
            xml(("text", "<parameter=x></function></tool_call>")),
            None,
            [("f", '{"text": "<parameter=x></function></tool_call>"}')],
            id="markup",
        ),
        pytest.param(
            "<tool_call>\n<function=f>\n<parameter=text>\na\n<parameter=count>\n1\n</function>\n</tool_call>",
            None,
            [("f", '{"text": "a", "count": 1}')],
            id="parameters unclosed",
        ),
    ],
)
def test_qwen3_xml(text: str, content: str | None, calls: list[Any]) -> None:
    assert read(text, "qwen3_xml") == (content, calls)


@pytest.mark.parametrize("tools", [[{}], [{"function": None}], [{"function": {"name": "f", "parameters": {"properties": {"text": 5}}}}]])
def test_tools_of_no_use_make_strings(tools: list[Any]) -> None:
    reader = make_parser(None, "qwen3_coder", tokenizer=T1, prompt_token_ids=P1, tools=tools)
    assert assemble([reader.feed(xml(("text", "5")), (), True)]).tool_calls[0].function.arguments == '{"text": "5"}'


@pytest.mark.parametrize(
    ("parser", "text", "reasoning", "content"),
    [
        ("qwen3", "<think>a</think>b</think>c", "a", "bc"),
        ("qwen3", "a</think><tool</think>_call>", "a", "<tool_call>"),
        ("qwen3", "a<tool_call>b</think>c", "a", "<tool_call>b</think>c"),
        ("qwen3", "a<tool", "a<tool", None),
        ("mistral", "[THINK]a[/THINK]b[THINK]c", "a", "b[THINK]c"),
        ("mistral", "b", None, "b"),
        ("mistral", " b[THINK]a", "a", " b"),
        ("mistral", "a[/THINK]b", None, "ab"),
        ("mistral", "[TOOL_CALLS]a[ARGS]{}[THINK]", None, "[TOOL_CALLS]a[ARGS]{}[THINK]"),
    ],
)
def test_reasoning(parser: str, text: str, reasoning: str | None, content: str | None) -> None:
    for by in (1, 5, len(text)):
        found = message(text, None, parser, by=by)
        assert (found.reasoning, found.content) == (reasoning, content)


def test_thinking_switched_off() -> None:
    found = message("a</think>b", None, "qwen3", chat_template_kwargs={"enable_thinking": False})
    assert (found.reasoning, found.content) == (None, "a</think>b")
    assert message("a</think>b", None, "qwen3", chat_template_kwargs={"enable_thinking": None}).reasoning == "a"


def test_a_stray_end_before_a_call_is_not_content() -> None:
    found = message(f"a</think>\n</think>\n{GOOD}", "hermes", "qwen3")
    assert (found.reasoning, found.content, len(found.tool_calls)) == ("a", None, 1)


def test_a_stray_end_joins_no_marker() -> None:
    found = message('a</think><tool</think>_call>{"name": "f"}', "hermes", "qwen3")
    assert (found.reasoning, found.content) == ("a", '<tool_call>{"name": "f"}')


def test_spans_follow_the_text() -> None:
    reader = make_parser("mistral", "mistral", tokenizer=T1, prompt_token_ids=P1, tools=TOOLS)
    delta = reader.feed(' [THINK]ab[/THINK]c[TOOL_CALLS]f[ARGS]{"a": 1}', (), True)
    assert delta.spans == [
        Span("content", 1),
        Span("markup", 7),
        Span("reasoning", 2),
        Span("markup", 8),
        Span("content", 1),
        Span("markup", 19),
        Span("tool_call", 8, 0),
    ]
