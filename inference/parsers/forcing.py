"""What a tool choice means: whether calls are read at all, and the shape that a forced one is held to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from inference.parsers.registry import find_tool_parser
from inference.parsers.tool_parser import ToolParser, Tools, Vocabulary

ToolChoice = str | Mapping[str, Any] | None


def is_named(tool_choice: ToolChoice) -> bool:
    return isinstance(tool_choice, Mapping)


def is_forced(tool_choice: ToolChoice) -> bool:
    return is_named(tool_choice) or tool_choice == "required"


def parses_tools(tools: Tools | None, tool_choice: ToolChoice, *, enable_auto: bool = True) -> bool:
    """Whether calls are looked for in the answer. A choice left out means auto, which a server may have switched off."""
    return bool(tools) and tool_choice != "none" and (enable_auto or is_forced(tool_choice))


def adjusts_skip_special_tokens(tool: str | None, tools: Tools | None, tool_choice: ToolChoice, *, enable_auto: bool = True) -> bool:
    """Whether render must set `skip_special_tokens` to false: markers may be special tokens, and the parser has to see them."""
    return tool is not None and parses_tools(tools, tool_choice, enable_auto=enable_auto)


def structural_tag(
    tool: str, tools: Tools, tool_choice: ToolChoice, *, vocabulary: Vocabulary, parallel_tool_calls: bool | None = True
) -> str | None:
    """The JSON text for `sampling_params.structured_outputs.structural_tag` that holds the model to its own markup; None if not forced.

    A named choice allows one call of that function, required allows one or more of any. The arguments are any JSON unless the function says
    `strict: true`: then they follow its schema. The keys are those of xgrammar's structural tags, as vLLM writes them.
    """
    if not is_forced(tool_choice):
        return None
    family = find_tool_parser(tool)
    functions = [declared for declared in map(function_of, tools) if is_chosen(declared, tool_choice)]
    tag = {
        "type": "structural_tag",
        "format": {
            "type": "tags_with_separator",
            "tags": [tag for function in functions for tag in tags(family, function, vocabulary)],
            "separator": family.separator,
            "at_least_one": True,
            "stop_after_first": is_named(tool_choice) or parallel_tool_calls is False,
        },
    }
    return json.dumps(tag, ensure_ascii=False)


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    declared = tool.get("function")
    return declared if isinstance(declared, Mapping) else {}


def is_chosen(function: Mapping[str, Any], tool_choice: ToolChoice) -> bool:
    if not isinstance(tool_choice, Mapping):
        return isinstance(function.get("name"), str)
    return function.get("name") == function_of(tool_choice).get("name")


def tags(family: type[ToolParser], function: Mapping[str, Any], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    content: dict[str, Any] = {
        "type": "json_schema",
        "json_schema": function.get("parameters", True) if function.get("strict") is True else True,
        "style": family.schema_style,
        "any_order": False,
        "max_whitespace_cnt": None,
        "excludes": [],
    }
    forms = family.forms(function["name"], vocabulary)
    return [{"type": "tag", "begin": form.begin, "content": content, "end": form.end} for form in forms]
