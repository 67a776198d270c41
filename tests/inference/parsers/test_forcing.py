"""What a tool choice does to a request: whether calls are read, and the shape that a forced call is held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inference.parsers import adjusts_skip_special_tokens, assemble, finish_reason, make_parser, structural_tag
from tests.inference.parsers.reading import NAMED, P1, T1, TOOLS

RECORDED = Path(__file__).parents[2] / "contract/vllm/chat_render"
OTHER = {"type": "function", "function": {"name": "other", "strict": True, "parameters": {"type": "object"}}}


def recorded(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(request, sampling parameters) as vLLM's render node with hermes rendered them."""
    exchange = json.loads((RECORDED / name).read_text())
    return exchange["request"], exchange["response"]["sampling_params"]


@pytest.mark.parametrize("name", ["tools_required_parser.json", "tools_named_parser.json"])
def test_the_recorded_structural_tag(name: str) -> None:
    request, sampling = recorded(name)
    tag = structural_tag("hermes", request["tools"], request["tool_choice"], vocabulary=T1)
    assert tag == sampling["structured_outputs"]["structural_tag"]


@pytest.mark.parametrize("name", ["tools_auto_parser.json", "tools_none_parser.json"])
def test_no_structural_tag_unless_forced(name: str) -> None:
    request, sampling = recorded(name)
    assert structural_tag("hermes", request["tools"], request["tool_choice"], vocabulary=T1) is None
    assert "structured_outputs" not in sampling


@pytest.mark.parametrize("name", ["tools_auto_parser.json", "tools_none_parser.json", "tools_named_parser.json"])
def test_a18_special_tokens_stay_while_calls_are_read(name: str) -> None:
    request, sampling = recorded(name)
    skips = sampling.get("skip_special_tokens", True)
    assert adjusts_skip_special_tokens("hermes", request["tools"], request["tool_choice"]) == (skips is False)


def test_special_tokens_are_the_requests_business_otherwise() -> None:
    assert not adjusts_skip_special_tokens(None, TOOLS, "auto")
    assert not adjusts_skip_special_tokens("hermes", None, None)
    assert not adjusts_skip_special_tokens("hermes", TOOLS, "auto", enable_auto=False)


def tags(tool: str, tool_choice: Any, **fields: Any) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    text = structural_tag(tool, [*TOOLS, OTHER], tool_choice, vocabulary=fields.pop("vocabulary", T1), **fields)
    assert text is not None
    made = json.loads(text)["format"]
    return [(tag["begin"], tag["end"]) for tag in made["tags"]], made


class OldMistral:
    def token_to_id(self, token: str) -> int | None:
        return None


@pytest.mark.parametrize(
    ("tool", "vocabulary", "arguments"),
    [
        ("hermes", T1, '{"city": 1}'),
        ("llama3_json", T1, '{"city": 1}'),
        ("mistral", T1, '{"city": 1}'),
        ("mistral", OldMistral(), '{"city": 1}'),
        ("qwen3_xml", T1, "<parameter=city>\n1\n</parameter>"),
    ],
)
def test_what_is_forced_is_read(tool: str, vocabulary: Any, arguments: str) -> None:
    """Every form that a model can be held to is a call to the parser, alone and after another."""
    forms, made = tags(tool, "required", vocabulary=vocabulary)
    assert made["at_least_one"]
    for begin, end in forms:
        text = made["separator"].join([begin + arguments + end] * 2)
        reader = make_parser(None, tool, tokenizer=T1, prompt_token_ids=P1, tools=TOOLS, tool_choice="required")
        message = assemble([reader.feed(text, (), True)], "required")
        assert message.content == ""
        assert [json.loads(call.function.arguments) for call in message.tool_calls] in ([{"city": 1}] * 2, [{"city": "1"}] * 2)


def test_one_function_or_any() -> None:
    assert {begin.split('"')[3] for begin, _ in tags("hermes", "required")[0]} == {"get_weather", "other"}
    assert {begin.split('"')[3] for begin, _ in tags("hermes", NAMED)[0]} == {"get_weather"}


def test_one_call_or_several() -> None:
    assert not tags("hermes", "required")[1]["stop_after_first"]
    assert tags("hermes", "required", parallel_tool_calls=False)[1]["stop_after_first"]
    assert tags("hermes", NAMED)[1]["stop_after_first"]


def test_only_a_strict_function_is_held_to_its_schema() -> None:
    contents = [tag["content"] for tag in tags("qwen3_coder", "required")[1]["tags"]]
    assert [content["json_schema"] for content in contents] == [True, {"type": "object"}]
    assert {content["style"] for content in contents} == {"qwen_xml"}


@pytest.mark.parametrize(
    ("engine_reason", "called", "tool_choice", "reason"),
    [
        ("stop", True, "auto", "tool_calls"),
        ("stop", True, None, "tool_calls"),
        ("stop", True, "required", "tool_calls"),
        ("stop", True, NAMED, "stop"),
        ("stop", False, "auto", "stop"),
        ("length", True, "auto", "length"),
        ("abort", True, "required", "abort"),
        (None, True, "auto", None),
    ],
)
def test_finish_reason(engine_reason: str | None, called: bool, tool_choice: Any, reason: str | None) -> None:
    assert finish_reason(engine_reason, called=called, tool_choice=tool_choice) == reason
