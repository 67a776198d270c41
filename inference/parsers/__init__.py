"""Reads reasoning, content and tool calls out of a model's text, piece by piece. See docs/parsers.md."""

from inference.parsers.emission import ParsedDelta, Part, Span
from inference.parsers.forcing import ToolChoice, adjusts_skip_special_tokens, is_forced, is_named, parses_tools, structural_tag
from inference.parsers.message import MessageBuilder, assemble, finish_reason
from inference.parsers.parser import Parser, end_ids, make_parser, reasoning_ended
from inference.parsers.registry import REASONING_PARSERS, TOOL_PARSERS, find_reasoning_parser, find_tool_parser
from inference.parsers.tool_parser import Tools, Vocabulary

__all__ = [
    "REASONING_PARSERS",
    "TOOL_PARSERS",
    "MessageBuilder",
    "ParsedDelta",
    "Parser",
    "Part",
    "Span",
    "ToolChoice",
    "Tools",
    "Vocabulary",
    "adjusts_skip_special_tokens",
    "assemble",
    "end_ids",
    "find_reasoning_parser",
    "find_tool_parser",
    "finish_reason",
    "is_forced",
    "is_named",
    "make_parser",
    "parses_tools",
    "reasoning_ended",
    "structural_tag",
]
