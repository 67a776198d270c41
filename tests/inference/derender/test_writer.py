"""Section F of the case list, as far as it is about text: a node's modes text and derender, and stop strings in tokens mode."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference.derender import TextWriter, text_writer
from inference.errors import ApiError
from inference.logprobs import generate_logprobs
from inference.protocol import codec
from inference.protocol.generate import GenerateChoice, GenerateChunkChoice, GenerateRequest
from inference.sampling import engine_sampling
from tests.inference.samples import ABSENT, BASE, DECODED, E_IDS, P1, PLACEHOLDERS, b, given, matrix, model, plain_lps, singles

CONTEXT = {"tools": None, "tool_choice": "none", "parallel_tool_calls": True, "include_reasoning": True, "chat_template_kwargs": {},
           "history_tool_call_cnt": 0}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CALL = [261, *b('\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'), 262]


def writer(mode: str, to: str = "R", sampling: Any = None, context: Any = None, as_ids: bool = False) -> TextWriter | None:
    body = {"token_ids": P1, "output_mode": mode, "sampling_params": {} if sampling is None else sampling, "parse_context": context}
    request = codec.convert(GenerateRequest, body)
    full = engine_sampling(request.sampling_params, prompt_token_ids=P1, model=model(to), scripted=True)
    return text_writer(request, full, model(to), as_ids=as_ids)


def written(made: TextWriter | None, parts: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(whole choice 0, parts shown)."""
    assert made is not None
    shown = [out for part in parts if (out := made.feed(GenerateChunkChoice(**{"index": 0, **part}))) is not None]
    ids = [i for part in shown for i in part.token_ids or ()]
    logprobs = [entry for part in shown if part.logprobs is not None and made.mode == "tokens" for entry in part.logprobs.content]
    last = shown[-1]
    choice = GenerateChoice(index=0, token_ids=ids, finish_reason=last.finish_reason, stop_reason=last.stop_reason, logprobs=logprobs)
    whole = json.loads(codec.encode(made.dress_whole(choice)))
    return whole, [json.loads(codec.encode(part)) for part in shown]


def test_tokens_mode_needs_no_writer() -> None:
    assert writer("tokens") is None


def test_f7_text() -> None:
    whole, _ = written(writer("text"), singles(b("Hi é")))
    assert (whole["text"], whole["token_ids"], "message" in whole) == ("Hi é", b("Hi é"), False)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_f8_stop_strings(size: int) -> None:
    whole, _ = written(writer("text", sampling={"stop": ["lo"]}), singles(b("hello wo"), size=size))
    assert (whole["text"], whole["token_ids"], whole["finish_reason"], whole["stop_reason"]) == ("hel", b("hello"), "stop", "lo")
    shown = {"stop": "lo", "include_stop_str_in_output": True}
    assert written(writer("text", sampling=shown), singles(b("hello wo"), size=size))[0]["text"] == "hello"


def test_f9_no_ids_after_the_match() -> None:
    ids = b("xxlo!!")
    whole, parts = written(writer("text", sampling={"stop": ["lo"], "logprobs": 1}), singles(ids, plain_lps(ids), size=6))
    assert (whole["text"], whole["token_ids"], len(whole["logprobs"]["content"])) == ("xx", b("xxlo"), 4)
    assert parts[0]["token_ids"] == b("xxlo")


def test_stop_strings_in_tokens_mode_end_the_ids() -> None:
    ids = b("xxlo!!")
    whole, parts = written(writer("tokens", sampling={"stop": ["lo"], "logprobs": 1}), singles(ids, plain_lps(ids), size=6))
    assert (whole["token_ids"], whole["stop_reason"], len(parts[0]["logprobs"]["content"])) == (b("xxlo"), "lo", 4)
    assert "token_id" in parts[0]["logprobs"]["content"][0]
    assert "text" not in parts[0]


@pytest.mark.parametrize(("as_ids", "override"), [(False, ABSENT), (True, ABSENT), (False, True), (True, False)])
def test_f14_text_mode_knows_only_the_flag(as_ids: bool, override: Any) -> None:
    context = given({**CONTEXT, "return_tokens_as_token_ids": override})
    whole, _ = written(writer("text", sampling={"logprobs": 2}, context=context, as_ids=as_ids), singles(E_IDS, BASE))
    assert whole["logprobs"]["content"] == (PLACEHOLDERS if as_ids else DECODED)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("to", "override", "placeholders"), matrix())
def test_f15_derender_mode_takes_the_override(to: str, override: Any, placeholders: bool, size: int) -> None:
    context = given({**CONTEXT, "return_tokens_as_token_ids": override})
    made = writer("derender", sampling={"logprobs": 2}, context=context, as_ids=to == "R!")
    whole, parts = written(made, singles(E_IDS, BASE, size=size))
    assert whole["logprobs"]["content"] == (PLACEHOLDERS if placeholders else DECODED)
    assert whole["message"]["content"] == "é"
    assert "".join(part["delta"].get("content", "") for part in parts) == "é"


@pytest.mark.parametrize("value", [1, None])
def test_f18_an_unknown_key_is_refused_in_derender_mode_alone(value: Any) -> None:
    with pytest.raises(ApiError, match="foo"):
        writer("derender", context={**CONTEXT, "foo": value})
    assert writer("text", context={**CONTEXT, "foo": value}) is not None
    assert writer("tokens", context={**CONTEXT, "foo": value}) is None


def test_f19_a_parser_needs_its_context() -> None:
    with pytest.raises(ApiError) as refused:
        writer("derender", "RP")
    assert refused.value.param == "parse_context"
    assert written(writer("derender"), singles(b("hi")))[0]["message"]["content"] == "hi"


def test_f21_a_message_with_reasoning_and_a_call() -> None:
    ids = [*b("r"), 260, *CALL]
    context = {**CONTEXT, "tools": TOOLS, "tool_choice": "auto"}
    whole, parts = written(writer("derender", "RP", {"skip_special_tokens": False}, context), singles(ids))
    message = whole["message"]
    assert (message["reasoning"], message["content"], whole["finish_reason"], whole["token_ids"]) == ("r", None, "tool_calls", ids)
    assert message["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert parts[-1]["finish_reason"] == "tool_calls"


def test_hidden_reasoning_in_derender_mode() -> None:
    ids = [*b("a"), 260, *b("b")]
    made = writer("derender", "RP", {"logprobs": 0}, {**CONTEXT, "include_reasoning": False})
    whole, parts = written(made, singles(ids, plain_lps(ids)))
    assert (whole["message"]["reasoning"], whole["message"]["content"]) == (None, "b")
    assert (whole["logprobs"], whole["token_ids"], [part["logprobs"] for part in parts]) == (None, None, [None] * 3)
    assert made is not None
    part = GenerateChunkChoice(index=0, token_ids=[1])
    made.conceal(part)
    assert part.token_ids is None


def test_h5_an_abort_lets_go_of_what_was_held_back() -> None:
    parts = [{"token_ids": b("ab")}, {"token_ids": [], "finish_reason": "abort"}]
    _, shown = written(writer("text", sampling={"stop": ["abc"]}), parts)
    assert [(part["text"], part["finish_reason"]) for part in shown] == [("", None), ("ab", "abort")]


def test_nothing_comes_after_the_end() -> None:
    made = writer("text", sampling={"stop": ["b"]})
    _, shown = written(made, singles(b("abcd")))
    assert len(shown) == 2
    assert made is not None
    assert made.finished


def test_engine_rows_need_no_detour_through_json() -> None:
    rows = generate_logprobs([104], [[(104, -0.5, 1), (105, float("nan"), 0)]])
    whole, _ = written(writer("text", sampling={"logprobs": 2}), [{"token_ids": [104], "logprobs": rows, "finish_reason": "stop"}])
    assert [t["logprob"] for t in whole["logprobs"]["content"][0]["top_logprobs"]] == [-0.5, -9999.0]


@pytest.mark.parametrize(("k", "kept"), [(0, 0), (1, 1), (2, 2)])
def test_derender_mode_cuts_candidates_as_chats_do(k: int, kept: int) -> None:
    whole, _ = written(writer("derender", sampling={"logprobs": k}), singles(E_IDS, BASE))
    assert [len(entry["top_logprobs"]) for entry in whole["logprobs"]["content"]] == [kept] * 2
