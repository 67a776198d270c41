"""Tokenizer t1 and the nodes of the case list, reduced to their parsers."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from inference.parsers import ParsedDelta, Parser, assemble, finish_reason, make_parser
from inference.protocol.chat import ChatMessage

T1 = Tokenizer.from_file(str(Path(__file__).parents[2] / "fixtures/tokenizers/t1/tokenizer.json"))
NODES = {
    "RP": ("deepseek_r1", "hermes"),
    "L3": (None, "llama3_json"),
    "MI": (None, "mistral"),
    "QX": ("qwen3", "qwen3_xml"),
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
P1 = [257, *b"user\nHi", 258, 10, 257, *b"assistant\n"]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def ids_of(text: str) -> list[int]:
    """Markers are single tokens, everything else is its bytes."""
    return [int(i) for i in T1.encode(text, add_special_tokens=False).ids]


def texts(pieces: Iterable[Sequence[int]]) -> Iterator[str]:
    """The text that each piece adds: a character comes with its last byte."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for ids in pieces:
        yield "".join(decoder.decode(bytes([i])) if i < 256 else T1.id_to_token(i) for i in ids)


def parser(node: str = "RP", prompt: Sequence[int] = P1, **fields: Any) -> Parser:
    reasoning, tool = NODES[node]
    fields = {"tools": TOOLS, "tool_choice": "auto", **fields}
    return make_parser(reasoning, tool, tokenizer=T1, prompt_token_ids=prompt, **fields)


def deltas(reader: Parser, pieces: Sequence[Sequence[int]]) -> list[ParsedDelta]:
    last = len(pieces) - 1
    return [reader.feed(text, ids, n == last) for n, (text, ids) in enumerate(zip(texts(pieces), pieces, strict=True))]


def chunkings(ids: list[int]) -> dict[str, list[list[int]]]:
    cut = {f"by {size}": [ids[i : i + size] for i in range(0, len(ids), size)] for size in (1, 3)}
    return {"whole": [ids], **cut, "empty last": [*cut["by 1"], []]}


def read(
    text: str, node: str = "RP", *, pieces: Sequence[Sequence[int]] | None = None, engine_reason: str = "stop", **fields: Any
) -> tuple[ChatMessage, str | None]:
    """The message and its finish reason; the whole text in one piece unless pieces are given."""
    reader = parser(node, **fields)
    message = assemble(deltas(reader, [ids_of(text)] if pieces is None else pieces), fields.get("tool_choice", "auto"))
    called = bool(reader.tool_call_ids)
    return message, finish_reason(engine_reason, called=called, tool_choice=fields.get("tool_choice", "auto"))


def calls(message: ChatMessage) -> list[tuple[str | None, str | None]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
