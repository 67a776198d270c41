"""The property behind the parsers: however a text is cut, the message is the same, and no character is lost, doubled or taken back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference.parsers import ParsedDelta, Span, assemble, make_parser
from inference.parsers.source import Source
from inference.protocol.chat import ChatMessage
from tests.inference.parsers.reading import P1, T1

Pair = tuple[str | None, str | None]
LONGEST_MARKER = len("<|python_tag|>")
PARAMETERS = {
    "s": {"type": "string"},
    "n": {"type": ["number", "null"]},
    "o": {"anyOf": [{"type": "object"}, {"type": "array"}]},
    "b": {"enum": [True, False]},
}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"properties": PARAMETERS}}}]
PAIRS: list[Pair] = [
    (None, "hermes"),
    (None, "llama3_json"),
    (None, "mistral"),
    (None, "qwen3_xml"),
    ("deepseek_r1", "hermes"),
    ("deepseek_r1", None),
    ("qwen3", "qwen3_xml"),
    ("qwen3", "hermes"),
    ("qwen3", None),
    ("mistral", "mistral"),
    ("mistral", None),
]

JSON_SHARDS = [
    "{", "}", "[", "]", '"', "\\", '\\"', ":", ",", '"name": "look_up"', '"arguments": ', '{"name": "look_up", "arguments": {"a": ',
    '{"arguments": {"a": [1, {}]}, "name": "look_up"}', '{"name": "look_up"}',
]  # fmt: skip
TOOL_SHARDS = {
    "hermes": ["<tool_call>", "</tool_call>", "<tool", "_call>", *JSON_SHARDS],
    "llama3_json": ["<|python_tag|>", "<|python", "_tag|>", "; ", *JSON_SHARDS],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[TOOL", "_CALLS]", "[AR", "GS]", "look", "_up[ARGS]{", "[TOOL_CALLS]look_up", *JSON_SHARDS],
    "qwen3_xml": [
        "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", "<param", "eter=", "</func", "tion>",
        "<tool_call><function=look_up>", "<parameter=s>", "<parameter=n>", "<parameter=o>", "12", "null", "[1]", "\n", '"', "\\", ">",
    ],
}  # fmt: skip
REASONING_SHARDS = {
    "deepseek_r1": ["<think>", "</think>", "</th", "ink>"],
    "qwen3": ["<think>", "</think>", "</th", "ink>", "<tool_call>", "<tool"],
    "mistral": ["[THINK]", "[/THINK]", "[TH", "INK]", "[TOOL_CALLS]"],
}
CHARACTERS = st.characters(exclude_categories=("Cs",))
ANYTHING = st.sampled_from([" ", "\n", " \n", "思考", "é", "😀", "👩\u200d👧", "\u2028", "text"]) | st.text(CHARACTERS, max_size=4)


def some(*shards: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(shards) | st.sampled_from(shards) | ANYTHING, max_size=10).map("".join)


STRINGS = some("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "</parameter>", "</think>", '"', "\\", "{", "]", "\n")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(STRINGS, VALUES, max_size=3)
Form = Callable[[str], str]
FORMS: dict[str, list[Form]] = {
    "hermes": [lambda a: f'<tool_call>\n{{"name": "look_up", "arguments": {a}}}\n</tool_call>', lambda a: f"<tool_call>{a}</tool_call>"],
    "llama3_json": [
        lambda a: f'<|python_tag|>{{"name": "look_up", "parameters": {a}}}',
        lambda a: f'{{"name":"look_up","arguments":{a}}}; ',
    ],
    "mistral": [
        lambda a: f"[TOOL_CALLS]look_up[ARGS]{a}",
        lambda a: f"[TOOL_CALLS]look_up{a}",
        lambda a: f'[TOOL_CALLS] [{{"name": "look_up", "arguments": {a}}}, {{"name": "look_up", "arguments": {{}}}}]',
    ],
    "qwen3_xml": [
        lambda a: (
            f"<tool_call>\n<function=look_up>\n<parameter=s>\n{a}\n</parameter>\n<parameter=n>12</parameter>\n</function></tool_call>"
        ),
        lambda a: f"<function=look_up>\n<parameter=o>\n{a}\n</parameter>\n</function>",
    ],
}


@st.composite
def written_calls(draw: st.DrawFn, tool: str) -> str:
    """A call as the family writes it, sometimes cut."""
    arguments = json.dumps(draw(ARGUMENTS), ensure_ascii=draw(st.booleans()))
    text = draw(st.sampled_from(FORMS[tool]))(arguments)
    return text[: draw(st.none() | st.integers(0, len(text)))]


def texts(pair: Pair) -> st.SearchStrategy[str]:
    reasoning, tool = pair
    noise = some(*REASONING_SHARDS.get(reasoning or "", []), *TOOL_SHARDS.get(tool or "", ["<"]))
    return st.lists(noise | written_calls(tool) if tool else noise, max_size=4).map("".join)


def read(pair: Pair, pieces: Sequence[str], **fields: Any) -> list[ParsedDelta]:
    """The finish comes with the last piece, as it does in a batch."""
    reader = make_parser(*pair, tokenizer=T1, prompt_token_ids=P1, tools=TOOLS, **fields)
    return [reader.feed(piece, finished=n == len(pieces) - 1) for n, piece in enumerate(pieces)]


def told(message: ChatMessage) -> tuple[Any, ...]:
    """All of a message but its ids, which are random."""
    return message.reasoning, message.content, [(call.function.name, call.function.arguments) for call in message.tool_calls or []]


def one_by_one(spans: Sequence[Span]) -> list[tuple[str, int | None]]:
    return [(span.part, span.call) for span in spans for _ in range(span.length)]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@given(st.data(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_chunking_gives_the_batch_answer(pair: Pair, data: st.DataObject, parallel: bool) -> None:
    text = data.draw(texts(pair))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    (batch,) = read(pair, [text], parallel_tool_calls=parallel)
    for cut in (pieces, list(text) or [""], [*text, ""]):
        stream = read(pair, cut, parallel_tool_calls=parallel)
        assert told(assemble(stream)) == told(assemble([batch]))
        assert one_by_one([span for delta in stream for span in delta.spans]) == one_by_one(batch.spans)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_character_goes_to_one_place(pair: Pair, data: st.DataObject) -> None:
    text = data.draw(texts(pair))
    (delta,) = read(pair, [text])
    places = one_by_one(delta.spans)
    assert len(places) == len(text)

    def shown(part: str, call: int | None = None) -> str:
        return "".join(char for char, place in zip(text, places, strict=True) if place == (part, call))

    assert (delta.reasoning or "", delta.content or "") == (shown("reasoning"), shown("content"))
    if pair[1] != "qwen3_xml":  # which has no JSON to show as it stands
        for call in delta.tool_calls:
            assert call.function.arguments in (shown("tool_call", call.index) or None, "{}")


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_calls_come_in_order_and_only_grow(pair: Pair, data: st.DataObject) -> None:
    begun = 0
    for delta in read(pair, list(data.draw(texts(pair))) or [""]):
        for part in delta.tool_calls:
            is_new = part.id is not None
            assert is_new == (part.function.name is not None) == (part.type is not None)
            assert part.index == (begun if is_new else begun - 1)
            begun += is_new


@given(st.lists(ARGUMENTS, min_size=1, max_size=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_well_written_calls_are_read_as_they_are(arguments: list[dict[str, Any]], ascii_only: bool) -> None:
    written = [json.dumps(each, ensure_ascii=ascii_only) for each in arguments]
    each_form = {
        "hermes": "\n".join(map(FORMS["hermes"][0], written)),
        "llama3_json": "".join(map(FORMS["llama3_json"][1], written)),
        "mistral": "".join(map(FORMS["mistral"][0], written)),
    }
    for tool, text in each_form.items():
        assert told(assemble(read((None, tool), list(text)))) == (None, None, [("look_up", each) for each in written])
    array = "[TOOL_CALLS] [" + ", ".join(f'{{"name": "look_up", "arguments": {each}}}' for each in written) + "]"
    assert told(assemble(read((None, "mistral"), list(array)))) == (None, None, [("look_up", each) for each in written])


@given(STRINGS, st.dictionaries(STRINGS, VALUES, max_size=2))
@settings(max_examples=60, deadline=None)
def test_xml_values_are_read_as_they_are(string: str, nested: dict[str, Any]) -> None:
    written = json.dumps(nested)
    assume(not any(end in string + written for end in ("</parameter>", "\n<parameter=", "\n</function>")))
    text = f"<tool_call>\n<function=look_up>\n<parameter=s>\n{string}\n</parameter>\n<parameter=o>\n{written}\n</parameter>\n</function>"
    message = assemble(read((None, "qwen3_xml"), list(text)))
    assert json.loads(message.tool_calls[0].function.arguments) == {"s": string, "o": nested}


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_a_feed_costs_its_text(pair: Pair, data: st.DataObject) -> None:
    """What is read again in the next feed is no more than the beginning of a marker, however much is held back."""
    read_again: list[int] = []
    push = Source.push

    def counted(self: Source, text: str, finished: bool) -> None:
        read_again.append(len(self.text) - self.at)
        push(self, text, finished)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "push", counted)
        read(pair, [*data.draw(texts(pair)), ""])
    assert max(read_again, default=0) < LONGEST_MARKER
