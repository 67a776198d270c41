"""Chat messages as templates want them: text parts joined, tool arguments as objects. Roles are the template's business."""

from __future__ import annotations

import json
from typing import Any

from inference.errors import BadRequest, SchemaError


def conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Copies, with keys that only some template knows kept as they are.

    Raises:
        BadRequest, SchemaError: a message without role or content, or with content that is not text; `param` names it.
    """
    if not messages:
        raise BadRequest("messages must hold at least one message.", "messages")
    return [normalized(message, f"body.messages.{i}") for i, message in enumerate(messages)]


def normalized(message: dict[str, Any], path: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise SchemaError(f"{path}.role: Expected str", f"{path}.role")
    made = {**message, "content": text_content(message.get("content"), role, f"{path}.content")}
    calls = message.get("tool_calls")
    if calls is not None:
        made["tool_calls"] = [parsed_call(call, f"{path}.tool_calls.{i}") for i, call in enumerate(as_list(calls, f"{path}.tool_calls"))]
    return made


def text_content(content: Any, role: str, path: str) -> str:
    """Only an assistant's message may lack content: it may consist of tool calls or reasoning."""
    if isinstance(content, str):
        return content
    if content is None and role in ("assistant", "tool"):
        return ""
    if not isinstance(content, list):
        raise SchemaError(f"{path}: Expected str or a list of content parts", path)
    return "\n".join(part_text(part, f"{path}.{i}") for i, part in enumerate(content))


def part_text(part: Any, path: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise SchemaError(f"{path}.type: Expected a content part with a type", f"{path}.type")
    text = part.get("refusal" if part["type"] == "refusal" else "text")
    if part["type"] not in ("text", "input_text", "output_text", "refusal"):
        raise BadRequest(f"{path}: content of type {part['type']!r} is not supported, this model takes text alone.", "messages")
    if not isinstance(text, str):
        raise SchemaError(f"{path}.text: Expected str", f"{path}.text")
    return text


def parsed_call(call: Any, path: str) -> dict[str, Any]:
    """OpenAI's wire has the arguments as JSON text; templates index into them."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise SchemaError(f"{path}.function.name: Expected a call of a named function", f"{path}.function.name")
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        arguments = {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as exc:
            raise BadRequest(f"{path}.function.arguments is not JSON: {exc}", f"{path}.function.arguments") from None
    return {**call, "function": {**function, "arguments": arguments}}


def as_list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise SchemaError(f"{path}: Expected a list", path)
    return value
