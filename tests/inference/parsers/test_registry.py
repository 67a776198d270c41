"""Parsers by name, what they ask of a tokenizer, and what they know of a prompt."""

from __future__ import annotations

import re
from typing import Any

import pytest

from inference.parsers import REASONING_PARSERS, TOOL_PARSERS, make_parser, reasoning_ended
from tests.inference.parsers.reading import CALL, P1, T1, TOOLS, ids_of


class Words:
    """A tokenizer that has these tokens alone."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = tokens

    def token_to_id(self, token: str) -> int | None:
        return self.tokens.index(token) if token in self.tokens else None


def test_names() -> None:
    assert {"deepseek_r1", "qwen3", "mistral"} <= set(REASONING_PARSERS)
    assert {"hermes", "llama3_json", "mistral", "qwen3_xml", "qwen3_coder"} <= set(TOOL_PARSERS)


def test_an_unknown_name_says_which_are_known() -> None:
    with pytest.raises(ValueError, match=r"no tool parser 'nope'; known are hermes, .*qwen3_xml"):
        make_parser(None, "nope", tokenizer=T1, prompt_token_ids=P1)
    with pytest.raises(ValueError, match=r"no reasoning parser 'nope'; known are deepseek_r1, "):
        make_parser("nope", None, tokenizer=T1, prompt_token_ids=P1)


@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3"])
def test_a_tokenizer_without_the_markers_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} needs a tokenizer that has </think> as"):
        make_parser(name, None, tokenizer=Words("<think>"), prompt_token_ids=P1)
    with pytest.raises(ValueError, match="<think> and </think>"):
        reasoning_ended(name, tokenizer=Words(), prompt_token_ids=P1)


@pytest.mark.parametrize(
    ("name", "prompt", "template_kwargs", "ended"),
    [
        (None, P1, None, None),
        ("deepseek_r1", P1, None, False),
        ("deepseek_r1", [*P1, 259, 10], {"open_think": True}, False),
        ("deepseek_r1", [*P1, 259, 260], None, True),
        ("deepseek_r1", [259, 260, *P1, 259], None, False),
        ("deepseek_r1", [], None, False),
        ("qwen3", P1, {"enable_thinking": True}, False),
        ("qwen3", P1, {"enable_thinking": False}, True),
        ("qwen3", [*P1, 259, 260], {}, True),
        ("mistral", P1, None, True),
    ],
)
def test_reasoning_ended(name: str | None, prompt: list[int], template_kwargs: dict[str, Any] | None, ended: bool | None) -> None:
    assert reasoning_ended(name, tokenizer=T1, prompt_token_ids=prompt, chat_template_kwargs=template_kwargs) is ended


def test_a_mistral_prompt_that_opens_the_reasoning() -> None:
    words = Words("[THINK]", "[/THINK]")
    assert reasoning_ended("mistral", tokenizer=words, prompt_token_ids=[0, 1, 5]) is True
    assert reasoning_ended("mistral", tokenizer=words, prompt_token_ids=[0, 1, 0, 5]) is False
    reader = make_parser("mistral", None, tokenizer=words, prompt_token_ids=[0])
    assert reader.feed("a[/THINK]b", (), True).reasoning == "a"


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("deepseek_r1", "<think>ab</think>cd", 2),
        ("deepseek_r1", "ab", 2),
        ("deepseek_r1", "ab</think>c</think>d", 2),
        ("qwen3", f"ab{CALL}", 2),
        (None, "ab", None),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_reasoning_tokens(name: str | None, text: str, count: int | None, size: int) -> None:
    ids = ids_of(text)
    reader = make_parser(name, None, tokenizer=T1, prompt_token_ids=P1)
    for start in range(0, len(ids), size):
        reader.feed("", ids[start : start + size])
    assert reader.reasoning_tokens == count


def test_reasoning_tokens_that_the_model_opens() -> None:
    words = Words("[THINK]", "[/THINK]")
    reader = make_parser("mistral", None, tokenizer=words, prompt_token_ids=[7])
    reader.feed("", [5, 0, 5, 5, 1, 5, 0, 5])
    assert reader.reasoning_tokens == 2


def test_ids_of_each_family() -> None:
    forms = {"mistral": "[0-9a-zA-Z]{9}", **dict.fromkeys(("hermes", "llama3_json", "qwen3_xml"), "chatcmpl-tool-[0-9a-f]{16}")}
    for name, form in forms.items():
        first, second = (TOOL_PARSERS[name].new_id("f", 0) for _ in range(2))
        assert re.fullmatch(form, first)
        assert first != second


def test_ids_may_count_the_conversations_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As families do that name a call by its function and its number."""
    monkeypatch.setattr(TOOL_PARSERS["hermes"], "new_id", staticmethod(lambda name, number: f"functions.{name}:{number}"))
    reader = make_parser(None, "hermes", tokenizer=T1, prompt_token_ids=P1, tools=TOOLS, history_tool_call_cnt=3)
    reader.feed(CALL + CALL, (), True)
    assert reader.tool_call_ids == ["functions.get_weather:3", "functions.get_weather:4"]
