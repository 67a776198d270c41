"""The parsers by name. `docs/parsers.md` shows how to add one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from inference.parsers import mistral, reasoning
from inference.parsers.hermes import Hermes
from inference.parsers.llama3_json import Llama3Json
from inference.parsers.qwen3_xml import Qwen3Xml
from inference.parsers.reasoning import ReasoningParser
from inference.parsers.tool_parser import ToolParser, Vocabulary

REASONING_PARSERS: dict[str, type[ReasoningParser]] = {
    "deepseek_r1": reasoning.DeepSeekR1,
    "mistral": reasoning.Mistral,
    "qwen3": reasoning.Qwen3,
}
TOOL_PARSERS: dict[str, type[ToolParser]] = {
    "hermes": Hermes,
    "llama3_json": Llama3Json,
    "mistral": mistral.Mistral,
    "qwen3_coder": Qwen3Xml,
    "qwen3_xml": Qwen3Xml,
}
P = TypeVar("P")


def find_reasoning_parser(name: str, vocabulary: Vocabulary) -> type[ReasoningParser]:
    """Raises ValueError for an unknown name, and for a tokenizer that does not fit it."""
    found = lookup(REASONING_PARSERS, name, "reasoning")
    found.check(name, vocabulary)
    return found


def find_tool_parser(name: str) -> type[ToolParser]:
    """Raises ValueError for an unknown name."""
    return lookup(TOOL_PARSERS, name, "tool")


def lookup(parsers: Mapping[str, P], name: str, kind: str) -> P:
    if name not in parsers:
        raise ValueError(f"There is no {kind} parser {name!r}; known are {', '.join(sorted(parsers))}.")
    return parsers[name]
