"""Coupled chat answers over a node's chunks: section G of the case list, stop strings, usage, and what is shown when."""

from __future__ import annotations

from typing import Any

import pytest

from inference.errors import InternalError
from inference.resolve import Layer
from tests.inference.samples import BASE, DECODED, E_IDS, HI, P1, PLACEHOLDERS, b, coupled, lp, matrix, model, plain_lps, singles, whole

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CALL = [261, *b('\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'), 262]


def texts(chunks: list[dict[str, Any]]) -> list[str]:
    return [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]


def entries(chunks: list[dict[str, Any]]) -> list[Any]:
    found = [choice["logprobs"]["content"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"] is not None]
    return [entry for part in found for entry in part]


@pytest.mark.parametrize(("to", "override", "placeholders"), matrix())
def test_g1_names_and_the_quirk_of_coupled_bytes(to: str, override: Any, placeholders: bool) -> None:
    fields = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": override}
    answer, _ = coupled(model(to), singles(E_IDS, BASE), **fields)
    choice = whole(answer)["choices"][0]
    shown = PLACEHOLDERS if placeholders else DECODED
    got = choice["logprobs"]["content"]
    assert [[e["token"], *(t["token"] for t in e["top_logprobs"])] for e in got] == [
        [e["token"], *(t["token"] for t in e["top_logprobs"])] for e in shown]
    assert [e["bytes"] for e in got] == [[], [195, 169]]
    assert [t["bytes"] for e in got for t in e["top_logprobs"]] == [b(t["token"]) for e in shown for t in e["top_logprobs"]]
    assert choice["message"]["content"] == "é"


@pytest.mark.parametrize("n", [1, 2])
def test_g7_each_choice_begins_with_its_role(n: int) -> None:
    fed = [part for i in range(n) for part in singles(b("Hi"), index=i)]
    _, chunks = coupled(model(), fed, stream=True, n=n, temperature=1.0)
    first = [chunk["choices"][0] for chunk in chunks[:n]]
    assert first == [{"index": i, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None} for i in range(n)]
    assert not any("role" in choice["delta"] for chunk in chunks[n:] for choice in chunk["choices"])


def test_the_keys_of_a_stream() -> None:
    _, chunks = coupled(model(), singles([*b("H"), 258], stop_reason=258), stream=True)
    role, token, last = chunks
    assert (role["prompt_token_ids"], role["prompt_text"]) == (None, None)
    assert set(token) == {"id", "object", "created", "model", "choices"}
    assert set(token["choices"][0]) == {"index", "delta", "logprobs", "finish_reason", "token_ids"}
    assert last["choices"][0] == {
        "index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": "stop", "stop_reason": None, "token_ids": None}
    assert last["system_fingerprint"]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_stop_strings_cut_hold_back_and_end(size: int) -> None:
    answer, chunks = coupled(model(), singles(b("hello wo"), size=size, finish="length"), stream=True, stop=["lo"])
    assert "".join(texts(chunks)) == "hel"
    last = chunks[-1]["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", "lo")
    assert answer.finished(0)
    assert answer.usage.completion_tokens == 5


def test_a_stop_string_can_be_shown() -> None:
    answer, _ = coupled(model(), singles(b("hello wo"), size=3), stop=["lo"], include_stop_str_in_output=True)
    assert whole(answer)["choices"][0]["message"]["content"] == "hello"


def test_a_tenants_stop_strings_hold_where_the_request_has_none() -> None:
    tenant = [Layer("tenant", {"stop": ["l"]})]
    answer, _ = coupled(model(), singles(b("hello")), tenant)
    assert whole(answer)["choices"][0]["message"]["content"] == "he"
    answer, _ = coupled(model(), singles(b("hello")), tenant, stop=[])
    assert whole(answer)["choices"][0]["message"]["content"] == "hello"


def test_what_was_held_back_comes_at_the_end() -> None:
    for finish in ("length", "abort"):
        fed: list[dict[str, Any]] = [{"token_ids": b("xab")}, {"token_ids": [], "finish_reason": finish}]
        _, chunks = coupled(model(), fed, stream=True, stop=["abc"])
        assert texts(chunks) == ["", "x", "ab"]
        assert chunks[-1]["choices"][0]["finish_reason"] == finish


def test_tokens_that_a_stop_string_cut_keep_their_logprobs() -> None:
    answer, _ = coupled(model(), [{"token_ids": b("xxlo!!"), "logprobs": plain_lps(b("xxlo!!")), "finish_reason": "length"}],
                        stop=["lo"], logprobs=True, return_token_ids=True)
    choice = whole(answer)["choices"][0]
    assert (choice["message"]["content"], choice["token_ids"], len(choice["logprobs"]["content"])) == ("xx", b("xxlo"), 4)
    assert whole(answer)["usage"]["completion_tokens"] == 4


def test_min_tokens_keeps_a_stop_string_from_ending() -> None:
    answer, _ = coupled(model(), singles(b("lo lo")), stop=["lo"], min_tokens=2)
    assert whole(answer)["choices"][0]["message"]["content"] == "lo "


@pytest.mark.parametrize(("ids", "reason", "fields", "text", "shown"), [
    ([*b("ab"), 258], 258, {}, "ab", None),                                   # EOS, from a node without a tokenizer
    ([*b("ab"), 258], None, {}, "ab", None),
    ([*b("ab"), 258], 258, {"stop_token_ids": [258]}, "ab", None),
    ([*b("ab"), 258], 258, {"ignore_eos": True, "stop_token_ids": [258]}, "ab", 258),
    ([*b("abc")], 99, {"stop_token_ids": [99]}, "ab", 99),                    # an ordinary token is left out too
    ([*b("abc")], 99, {"stop_token_ids": [99], "include_stop_str_in_output": True}, "abc", 99),
])
def test_stop_tokens_are_no_text(ids: list[int], reason: int | None, fields: dict[str, Any], text: str, shown: int | None) -> None:
    answer, _ = coupled(model(), singles(ids, stop_reason=reason), **fields)
    choice = whole(answer)["choices"][0]
    assert (choice["message"]["content"], choice["stop_reason"], choice["finish_reason"]) == (text, shown, "stop")


def test_nothing_is_shown_of_a_character_until_it_is_whole() -> None:
    _, chunks = coupled(model(), singles(b("é")), stream=True)
    assert texts(chunks) == ["", "é"]


def test_logprobs_and_ids_are_shown_of_a_token_without_text() -> None:
    _, chunks = coupled(model(), singles(b("é"), BASE), stream=True, logprobs=True, return_token_ids=True)
    assert texts(chunks) == ["", "", "é"]
    assert [chunk["choices"][0].get("token_ids") for chunk in chunks] == [None, [195], [169]]
    assert chunks[0]["prompt_token_ids"] == P1


def test_usage_comes_last_and_counts_all_choices() -> None:
    fed = [part for i in range(2) for part in singles(b("Hi"), index=i)]
    options = {"include_usage": True}
    _, chunks = coupled(model(), fed, stream=True, n=2, temperature=1.0, stream_options=options)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 21, "total_tokens": 25, "completion_tokens": 4}
    assert [chunk.get("usage") for chunk in chunks[:-1]] == [None] * 6
    assert ["system_fingerprint" in chunk for chunk in chunks] == [False] * 6 + [True]


def test_continuous_usage_counts_along() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, chunks = coupled(model(), singles(b("abc")), stream=True, stream_options=options)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 3, 3]
    _, chunks = coupled(model(), singles(b("abc")), stream=True, stream_options={"continuous_usage_stats": True})
    assert not any("usage" in chunk for chunk in chunks)


def test_usage_by_a_tenants_default() -> None:
    tenant = [Layer("tenant", {"stream_options.include_usage": True})]
    assert coupled(model(), singles(b("a")), tenant, stream=True)[1][-1]["choices"] == []
    assert coupled(model(), singles(b("a")), tenant, stream=True, stream_options={"include_usage": False})[1][-1]["choices"]


def test_an_engines_error_ends_the_request() -> None:
    with pytest.raises(InternalError):
        coupled(model(), [{"token_ids": [72], "finish_reason": "error"}], stream=True)


@pytest.mark.parametrize("part", [{"logprobs": {"content": [{"token": "token_id:72"}]}}, {"index": 1}, {"index": -1}])
def test_a_node_that_answers_nonsense_is_not_the_tenants_fault(part: dict[str, Any]) -> None:
    with pytest.raises(InternalError):
        coupled(model(), [{"token_ids": [72], **part}], logprobs=True)


def test_what_comes_after_the_end_is_dropped() -> None:
    answer, _ = coupled(model(), [*singles(b("ab")), {"token_ids": b("cd"), "finish_reason": "length"}])
    assert whole(answer)["choices"][0]["message"]["content"] == "ab"
    assert whole(answer)["usage"]["completion_tokens"] == 2


def test_an_echo_stands_before_the_text() -> None:
    messages = [*HI, {"role": "assistant", "content": "The "}]
    fields = {"messages": messages, "echo": True, "continue_final_message": True, "add_generation_prompt": False}
    answer, _ = coupled(model(), singles(b("end")), **fields)
    assert whole(answer)["choices"][0]["message"]["content"] == "The end"
    _, chunks = coupled(model(), singles(b("end"), size=3), stream=True, **fields)
    assert texts(chunks) == ["", "The ", "end"]


def test_prompt_text_and_ids_where_they_are_asked_for() -> None:
    answer, _ = coupled(model(), singles(b("a")), return_prompt_text=True, return_token_ids=True)
    made = whole(answer)
    assert made["prompt_token_ids"] == P1
    assert made["prompt_text"].startswith("<|im_start|>user\nHi<|im_end|>")
    assert made["choices"][0]["token_ids"] == b("a")


def test_a_node_that_ranks_nothing() -> None:
    rows = {"content": [{"token_id": 72, "logprob": -9999.0, "rank": None, "top_logprobs": []}]}
    fields = {"logprobs": True, "return_tokens_as_token_ids": True}
    answer, _ = coupled(model(), [{"token_ids": [72], "logprobs": rows, "finish_reason": "stop"}], **fields)
    entry = whole(answer)["choices"][0]["logprobs"]["content"][0]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("token_id:72", -9999.0, b("token_id:72"))


@pytest.mark.parametrize("size", [1, 3, 200])
def test_reasoning_and_calls_come_out_of_any_chunking(size: int) -> None:
    ids = [*b("r"), 260, *CALL]
    answer, _ = coupled(model("RP"), singles(ids, size=size), tools=TOOLS)
    choice = whole(answer)["choices"][0]
    assert (choice["message"]["reasoning"], choice["message"]["content"], choice["finish_reason"]) == ("r", None, "tool_calls")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}


def test_g9_logprobs_of_tokens_that_a_parser_swallows() -> None:
    ids = [*b("r"), 260, *CALL]
    _, chunks = coupled(model("RP"), singles(ids, plain_lps(ids)), stream=True, tools=TOOLS, logprobs=True)
    assert len(entries(chunks)) == len(ids)


def test_reasoning_tokens_are_counted() -> None:
    answer, chunks = coupled(model("RP"), singles([*b("abc"), 260, *b("d")]), stream=True, stream_options={"include_usage": True})
    assert chunks[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert answer.usage.completion_tokens == 5


def test_hidden_reasoning_takes_tokens_and_logprobs_along() -> None:
    ids = [*b("a"), 260, *b("b")]
    fields = {"include_reasoning": False, "logprobs": True, "return_token_ids": True}
    answer, _ = coupled(model("RP"), singles(ids, plain_lps(ids)), **fields)
    choice = whole(answer)["choices"][0]
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == (None, "b")
    assert (choice["logprobs"], choice["token_ids"]) == (None, None)
    assert answer.usage.completion_tokens == 3


def test_candidates_of_all_kept_for_minus_one() -> None:
    rows = lp((65, -4.0, 7, [(65, -4.0, 7), (66, -0.5, 1), (67, -1.0, 2)]))
    for top, kept in ((-1, 3), (1, 1), (0, 0)):
        answer, _ = coupled(model(), singles([65], rows), logprobs=True, top_logprobs=top)
        assert len(whole(answer)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == kept
