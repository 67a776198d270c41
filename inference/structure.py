"""Structured outputs: what a request asks for, the form in which it travels (`sampling_params.structured_outputs`), what the engine gets.

The travelling form is vLLM's: one key of KINDS is set, the others are null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from inference.errors import BadRequest, SchemaError
from inference.protocol.engine import Constraint
from inference.protocol.openai import OpenAIRequest
from inference.schema import LONGEST, checked_schema

NO_STRUCTURE: Mapping[str, Any] = MappingProxyType({
    **dict.fromkeys(("json", "regex", "choice", "grammar", "json_object", "whitespace_pattern", "structural_tag")),
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
})
KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
INTERNAL = ("_backend", "_backend_was_auto")  # of vLLM, in its render output
STRUCTURED_OUTPUTS = "structured_outputs"
MOST_CHOICES = 1024
Kind = Literal["json_schema", "json_object", "regex", "grammar", "structural_tag"]


def structure_of(request: OpenAIRequest) -> dict[str, Any] | None:
    """What travels for `response_format` or `structured_outputs`; None where the request asks for neither.

    Raises:
        BadRequest, SchemaError: it cannot be honoured; `param` names the field.
    """
    formatted = structure_of_format(request.response_format)
    if request.structured_outputs is None:
        if formatted is not None:
            check_structure(formatted, "response_format")
        return formatted
    if formatted is not None:
        raise BadRequest("structured_outputs and response_format cannot both say what the output must be.", STRUCTURED_OUTPUTS)
    structure = {**NO_STRUCTURE, **request.structured_outputs}
    check_structure(structure, STRUCTURED_OUTPUTS)
    return structure


def place_of_structure(request: OpenAIRequest) -> str:
    """The field of the request that the travelling structure came from."""
    if request.structured_outputs is not None:
        return STRUCTURED_OUTPUTS
    return "tools" if structure_of_format(request.response_format) is None else "response_format"


def structure_of_format(response_format: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if response_format is None:
        return None
    match response_format.get("type"):
        case "text":
            return None
        case "json_object":
            return {**NO_STRUCTURE, "json_object": True}
        case "json_schema":
            declared = response_format.get("json_schema")
            if not isinstance(declared, dict) or "schema" not in declared:
                path = "body.response_format.json_schema.schema"
                raise SchemaError(f"{path}: Expected a JSON schema", path)
            return {**NO_STRUCTURE, "json": declared["schema"]}
        case other:
            path = "body.response_format.type"
            raise SchemaError(f"{path}: Expected 'text', 'json_object' or 'json_schema', got {str(other)[:200]!r}", path)


def check_structure(structure: Mapping[str, Any], param: str) -> None:
    """Raises BadRequest for what no engine of ours would take."""
    read_structure(structure, param)


def constraint_of(structure: Mapping[str, Any] | None, *, after: Sequence[int] = ()) -> Constraint | None:
    """What the engine is given for a travelling structure.

    Args:
        after: ids that end the reasoning, where the output begins with some.

    Raises:
        BadRequest: it is none, or cannot be honoured.
    """
    if structure is None:
        return None
    kind, text = read_structure(structure, STRUCTURED_OUTPUTS)
    spaced = structure.get("disable_any_whitespace") is not True
    return Constraint(kind=kind, text=text, any_whitespace=spaced, after_token_ids=tuple(after))


def read_structure(structure: Mapping[str, Any], param: str) -> tuple[Kind, str]:
    """The engine's kind and text of it."""
    unknown = set(structure) - set(NO_STRUCTURE) - set(INTERNAL)
    if unknown:
        raise BadRequest(f"structured_outputs.{min(unknown)} is not supported.", param)
    if structure.get("whitespace_pattern") is not None:
        raise BadRequest("structured_outputs.whitespace_pattern is not supported.", param)
    for flag in ("disable_any_whitespace", "disable_additional_properties"):
        if structure.get(flag) not in (None, True, False):
            raise BadRequest(f"structured_outputs.{flag} must be a boolean.", param)
    if structure.get("disable_additional_properties"):
        raise BadRequest("structured_outputs.disable_additional_properties is not supported: the schema can say so itself.", param)
    asked = [kind for kind in KINDS if structure.get(kind) is not None]
    if len(asked) != 1:
        raise BadRequest(f"structured_outputs needs exactly one of {', '.join(KINDS)}, got {', '.join(asked) or 'none'}.", param)
    kind, text = READERS[asked[0]](structure[asked[0]], param)
    if len(text) > LONGEST:
        raise BadRequest(f"{asked[0]} is longer than {LONGEST} characters.", param)
    return kind, text


def read_schema(value: Any, param: str) -> tuple[Kind, str]:
    """A schema, or JSON text of one. Checked for its length first: the rest costs as much as it is long."""
    if isinstance(value, str):
        value = parsed(value, "json", param)
    if len(dumped(value)) > LONGEST:
        raise BadRequest(f"The schema is longer than {LONGEST} characters.", param)
    return "json_schema", dumped(checked_schema(value, "schema", param))


def read_object(value: Any, param: str) -> tuple[Kind, str]:
    if value is not True:
        raise BadRequest("structured_outputs.json_object must be true where it is given.", param)
    return "json_object", ""


def read_regex(value: Any, param: str) -> tuple[Kind, str]:
    return "regex", text_of(value, "regex", param)


def read_grammar(value: Any, param: str) -> tuple[Kind, str]:
    return "grammar", text_of(value, "grammar", param)


def read_choice(value: Any, param: str) -> tuple[Kind, str]:
    """A grammar of nothing but texts."""
    fits = isinstance(value, list) and value and all(isinstance(text, str) and text for text in value)
    if not fits or len(value) > MOST_CHOICES:
        raise BadRequest(f"structured_outputs.choice must be a list of 1 to {MOST_CHOICES} texts, none of them empty.", param)
    return "grammar", "root ::= " + " | ".join(dumped(text) for text in value)


def read_tag(value: Any, param: str) -> tuple[Kind, str]:
    text = text_of(value, "structural_tag", param)
    tag = parsed(text, "structural_tag", param)
    return "structural_tag", dumped(checked_tag(tag, param, 0))


def checked_tag(tag: Any, param: str, depth: int) -> Any:
    """The tag with every schema in it checked."""
    if depth > 32:
        raise BadRequest("structured_outputs.structural_tag is too deep.", param)
    if isinstance(tag, list):
        return [checked_tag(part, param, depth + 1) for part in tag]
    if not isinstance(tag, dict):
        return tag
    return {
        key: checked_schema(value, "json_schema", param) if key == "json_schema" else checked_tag(value, param, depth + 1)
        for key, value in tag.items()
    }


READERS = {
    "json": read_schema, "regex": read_regex, "choice": read_choice, "grammar": read_grammar, "json_object": read_object,
    "structural_tag": read_tag,
}  # fmt: skip


def text_of(value: Any, name: str, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadRequest(f"structured_outputs.{name} must be a text that is not empty.", param)
    return value


def parsed(text: str, name: str, param: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadRequest(f"structured_outputs.{name} is not JSON: {exc}", param) from None


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
