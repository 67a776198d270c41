"""Structured outputs on the wire, in vLLM's form, and what the engine gets of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference.errors import ApiError, BadRequest
from inference.parsing import reasoning_end_ids
from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.codec import convert
from inference.protocol.engine import Constraint
from inference.sampling import engine_sampling, for_node
from inference.structure import NO_STRUCTURE, constraint_of, place_of_structure
from tests.inference.samples import HI, chat_render, completion_render, model

RECORDED = Path(__file__).parents[1] / "contract" / "vllm" / "chat_render"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]


def wire(**fields: Any) -> dict[str, Any] | None:
    return chat_render(model(), **fields).generate.sampling_params.structured_outputs


@pytest.mark.parametrize("name", ["response_format_json_schema", "response_format_json_object", "structured_outputs_choice"])
def test_what_travels_is_what_was_recorded(name: str) -> None:
    recording = json.loads((RECORDED / f"{name}.json").read_text())
    asked = {key: recording["request"][key] for key in ("response_format", "structured_outputs") if key in recording["request"]}
    expected = recording["response"]["sampling_params"]["structured_outputs"]
    assert wire(**asked) == {key: value for key, value in expected.items() if not key.startswith("_")}


def test_completions_have_it_too() -> None:
    (rendered,) = completion_render(model(), "Hi", structured_outputs={"regex": "a+"})
    assert rendered.generate.sampling_params.structured_outputs == {**NO_STRUCTURE, "regex": "a+"}


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}, {"response_format": None}])
def test_nothing_travels_where_nothing_is_asked(fields: dict[str, Any]) -> None:
    assert wire(**fields) is None


@pytest.mark.parametrize(("structure", "constraint"), [
    ({"json": {"type": "string"}}, Constraint(kind="json_schema", text='{"type": "string"}')),
    ({"json": '{"type": "string"}'}, Constraint(kind="json_schema", text='{"type": "string"}')),
    ({"json_object": True, "disable_any_whitespace": True}, Constraint(kind="json_object", any_whitespace=False)),
    ({"regex": "a+"}, Constraint(kind="regex", text="a+")),
    ({"choice": ["a\"b", "日本\n"]}, Constraint(kind="grammar", text='root ::= "a\\"b" | "日本\\n"')),
    ({"grammar": 'root ::= "a"'}, Constraint(kind="grammar", text='root ::= "a"')),
    ({**NO_STRUCTURE, "regex": "a", "_backend": None, "_backend_was_auto": False}, Constraint(kind="regex", text="a")),
])
def test_what_the_engine_gets(structure: dict[str, Any], constraint: Constraint) -> None:
    assert constraint_of(structure) == constraint


@pytest.mark.parametrize("structure", [
    {}, {"regex": ""}, {"regex": 5}, {"json_object": False}, {"choice": ["a", ""]}, {"choice": "a"}, {"json": "{"},
    {"json": [], "regex": "a"}, {"regex": "a", "nope": 1}, {"regex": "a", "whitespace_pattern": " "},
    {"json": {}, "disable_additional_properties": True}, {"json": {}, "disable_any_whitespace": "yes"},
    {"regex": "a" * 200_000}, {"structural_tag": "{"}, {"json": {"enum": ["a" * 200_000]}},
])
def test_what_is_none(structure: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        constraint_of(structure)
    assert refused.value.param == "structured_outputs"


def forced(parameters: Any, **fields: Any) -> dict[str, Any] | None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}]
    return chat_render(model("RP"), tools=tools, tool_choice="required", **fields).generate.sampling_params.structured_outputs


def test_a_forced_calls_schema_is_looked_at_by_its_own_name() -> None:
    assert constraint_of(forced({"type": "object", "properties": {}}))
    with pytest.raises(ApiError) as refused:
        forced({"type": "object", "not": {}})
    assert refused.value.param == "tools"


def test_a_forced_call_has_no_content_to_format() -> None:
    tag = forced({"type": "object", "properties": {}}, response_format={"type": "json_object"})
    assert tag is not None
    assert (tag["structural_tag"] is None, tag["json_object"]) == (False, None)
    with pytest.raises(BadRequest) as refused:
        forced({"type": "object", "properties": {}}, structured_outputs={"regex": "a"})
    assert refused.value.param == "structured_outputs"


@pytest.mark.parametrize(("fields", "place"), [
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ({"tools": TOOLS, "tool_choice": "required"}, "tools"),
])
def test_where_a_structure_came_from(fields: dict[str, Any], place: str) -> None:
    assert place_of_structure(convert(ChatCompletionRequest, {"messages": HI, **fields})) == place


def test_a_structure_waits_for_the_reasonings_end() -> None:
    """A node without a tokenizer is told the ids; one with a parser of its own finds them itself."""
    to, format_ = model("RP"), {"type": "json_object"}
    rendered = chat_render(to, response_format=format_).generate
    assert rendered.reasoning_ended is False
    assert reasoning_end_ids(rendered, to) == [260]
    sent = for_node(rendered, to.tokenizer, reasoning_end_ids=reasoning_end_ids(rendered, to))
    bare = replace(to, loaded_tokenizer=None)
    ids = reasoning_end_ids(sent, bare)
    sampling = engine_sampling(sent.sampling_params, prompt_token_ids=sent.token_ids, model=bare, reasoning_end_ids=ids)
    assert sampling.constraint == Constraint(kind="json_object", after_token_ids=(260,))
    with pytest.raises(BadRequest) as refused:
        reasoning_end_ids(rendered, bare)
    assert refused.value.param == "reasoning_ended"
    without = chat_render(to, response_format=format_, include_reasoning=False).generate
    assert (without.reasoning_ended, reasoning_end_ids(without, to)) == (True, [260])  # hidden, but there all the same
