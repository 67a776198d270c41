"""Sections B and C of the case list: whole answers out of token ids, and the names of tokens in logprobs."""

from __future__ import annotations

from typing import Any

import pytest

from inference.errors import ApiError, BadRequest, NotFound
from inference.resolve import Layer
from tests.inference.samples import (
    BASE,
    DECODED,
    DECODED_TEXT,
    E_IDS,
    HI,
    P1,
    PLACEHOLDER_TEXT,
    PLACEHOLDERS,
    b,
    derendered,
    lp,
    matrix,
    model,
    plain_lps,
    response,
    whole_chat,
    whole_text,
)


def content(answer: dict[str, Any]) -> Any:
    return answer["choices"][0]["message"]["content"]


def names(answer: dict[str, Any]) -> list[list[Any]]:
    return [[e["token"], e["bytes"]] for e in answer["choices"][0]["logprobs"]["content"]]


def test_b1_plain_text() -> None:
    answer = whole_chat(model(), b("Hi é"))
    assert (answer["id"], answer["object"], answer["model"]) == ("r", "chat.completion", "m")
    assert (content(answer), answer["choices"][0]["finish_reason"]) == ("Hi é", "stop")
    assert [answer["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")] == [0, 5, 5]


def test_b2_the_keys_of_a_message() -> None:
    choice = whole_chat(model(), b("Hi"))["choices"][0]
    assert set(choice["message"]) == {"role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"}
    assert (choice["logprobs"], choice["stop_reason"], choice["token_ids"]) == (None, None, None)


def test_b3_usage_adds_up() -> None:
    assert whole_chat(model(), b("Hi é"), prompt_tokens=10)["usage"]["total_tokens"] == 15
    two = {"choices": [*response(b("abc"))["choices"], *response(b("abcd"), index=1)["choices"]]}
    assert derendered(model(), {"generate_response": two})["usage"]["completion_tokens"] == 7


def test_b4_the_prompt_decides_on_a_leading_space() -> None:
    assert content(whole_chat(model("R2"), [268, 276])) == "Hello there"
    assert content(whole_chat(model("R2"), [268, 276], prompt_token_ids=[1, 268, 299])) == " Hello there"


def test_b5_the_requests_prompt_goes_before_the_responses() -> None:
    body = {"generate_response": response([268, 276], prompt_token_ids=[1, 268, 299])}
    assert content(derendered(model("R2"), body)) == " Hello there"
    assert content(derendered(model("R2"), {**body, "prompt_token_ids": [1]})) == "Hello there"


def test_b7_special_tokens_are_skipped_unless_kept() -> None:
    assert content(whole_chat(model(), [72, 105, 258])) == "Hi"
    assert content(whole_chat(model(), [72, 105, 258], request={"skip_special_tokens": False})) == "Hi<|im_end|>"


def test_b7_a_tenants_default_keeps_them_too() -> None:
    kept = Layer("tenant", {"skip_special_tokens": False})
    assert content(derendered(model(), {"generate_response": response([72, 258])}, layers=[kept])) == "H<|im_end|>"


def test_b8_pending_bytes_are_never_guessed() -> None:
    answer = whole_chat(model(), [72, 240, 159, 152])
    assert (content(answer), answer["usage"]["completion_tokens"]) == ("H", 4)


def test_b9_a_stray_byte_in_the_middle_is_data() -> None:
    assert content(whole_chat(model(), [128, 65])) == "\ufffdA"


@pytest.mark.parametrize("ids", [[], None, [-1, 72]])
def test_b11_a_choice_without_good_ids_is_refused(ids: Any) -> None:
    with pytest.raises(ApiError) as refused:
        whole_chat(model(), ids)
    assert refused.value.status == 400


def test_b11_no_choices_are_fine() -> None:
    assert derendered(model(), {"generate_response": {"request_id": "r", "choices": []}})["choices"] == []


@pytest.mark.parametrize("mode", ["text", "derender"])
def test_b12_only_tokens_can_be_derendered(mode: str) -> None:
    with pytest.raises(ApiError) as refused:
        derendered(model(), {"generate_response": response([72], output_mode=mode)})
    assert refused.value.param == "body.generate_response.output_mode"


BOUNDS: list[tuple[dict[str, Any], str]] = [
    ({"generate_response": response([97] * 513)}, "max_model_len"),
    ({"generate_response": response([97]), "prompt_token_ids": [97] * 513}, "max_model_len"),
    ({"generate_response": response([97], prompt_logprobs=[None] * 513)}, "max_model_len"),
    ({"generate_response": {"choices": response([97])["choices"] * 16385}}, "choices count"),
    ({"generate_response": response([65], lp((65, -1.0, 1, [(65 + i, -1.0, i + 1) for i in range(22)])))}, "max_logprobs"),
    ({"generate_response": response([65], lp((65, -1.0, 1, [(65 + i, -1.0, i + 1) for i in range(22)])))}, "top_logprobs count"),
]


@pytest.mark.parametrize(("body", "says"), BOUNDS)
def test_b13_bounds(body: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        derendered(model(), body)


def test_b13_what_is_within_bounds() -> None:
    assert content(whole_chat(model(), [97] * 512)) == "a" * 512
    whole_chat(model(), [65], lp((65, -1.0, 30, [(65 + i, -1.0, i + 1) for i in range(21)])))  # k + 1: the sampled token is outside


def test_b13_completions_count_their_responses() -> None:
    with pytest.raises(BadRequest, match="generate_responses count"):
        derendered(model(), {"generate_responses": [response([97])] * 16385}, "completion")


def test_b16_models_by_name() -> None:
    assert whole_chat(model(), [72], foo=1)["model"] == "m"
    with pytest.raises(NotFound):
        whole_chat(model(), [72], model="nope")


@pytest.mark.parametrize(("wanted", "shown"), [(True, [72, 105]), (False, None)])
def test_b17_ids_come_back_where_they_are_asked_for(wanted: bool, shown: Any) -> None:
    assert whole_chat(model(), [72, 105], request={"return_token_ids": wanted})["choices"][0]["token_ids"] == shown
    assert whole_text(model(), [72, 105], request={"return_token_ids": wanted})["choices"][0]["token_ids"] == shown


def test_b18_a_parser_needs_the_request() -> None:
    with pytest.raises(BadRequest, match="chat_request"):
        whole_chat(model("RP"), [72])


def test_c1_names_are_mended_in_the_light_of_what_was_sampled() -> None:
    assert whole_chat(model(), E_IDS, BASE)["choices"][0]["logprobs"]["content"] == DECODED


@pytest.mark.parametrize(("to", "override", "placeholders"), matrix())
def test_c2_c9_an_explicit_value_beats_the_default(to: str, override: Any, placeholders: bool) -> None:
    request = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": override}
    answer = whole_chat(model(to), E_IDS, BASE, request)
    assert answer["choices"][0]["logprobs"]["content"] == (PLACEHOLDERS if placeholders else DECODED)
    assert content(answer) == "é"


def test_c3_the_default_holds_where_there_is_nothing_to_override() -> None:
    assert whole_chat(model(), E_IDS, BASE)["choices"][0]["logprobs"]["content"] == DECODED
    assert whole_chat(model("R!"), E_IDS, BASE)["choices"][0]["logprobs"]["content"] == PLACEHOLDERS


@pytest.mark.parametrize(("to", "override", "placeholders"), matrix())
def test_c4_the_same_for_completions(to: str, override: Any, placeholders: bool) -> None:
    choice = whole_text(model(to), E_IDS, BASE, {"logprobs": 2, "return_tokens_as_token_ids": override})["choices"][0]
    assert choice["logprobs"] == (PLACEHOLDER_TEXT if placeholders else DECODED_TEXT)
    assert choice["text"] == "é"


def test_h8_a_tenants_default_lies_between() -> None:
    tenant = [Layer("tenant", {"return_tokens_as_token_ids": False})]
    body = {"generate_response": response(E_IDS, BASE)}
    assert derendered(model("R!"), body, layers=tenant)["choices"][0]["logprobs"]["content"] == DECODED
    asked = {**body, "chat_request": {"messages": HI, "logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True}}
    assert derendered(model("R!"), asked, layers=tenant)["choices"][0]["logprobs"]["content"] == PLACEHOLDERS


def test_c10_a_character_of_four_tokens() -> None:
    smile = b("😀")
    assert names(whole_chat(model(), smile, plain_lps(smile))) == [["", []], ["", []], ["", []], ["😀", smile]]


def test_c13_a_stray_byte_has_no_name() -> None:
    answer = whole_chat(model(), [128, 65], plain_lps([128, 65]))
    assert (names(answer), content(answer)) == ([["", []], ["A", [65]]], "\ufffdA")


def test_c14_leading_spaces_are_restored() -> None:
    rows = lp((280, -0.1, 1, [(280, -0.1, 1), (294, -0.2, 2)]))
    entry = whole_chat(model("R2"), [280], rows)["choices"][0]["logprobs"]["content"][0]
    assert (entry["token"], entry["bytes"], [t["token"] for t in entry["top_logprobs"]]) == (" true", b(" true"), [" true", "true"])
    assert whole_text(model("R2"), [280], rows)["choices"][0]["logprobs"]["top_logprobs"] == [{" true": -0.1, "true": -0.2}]


def test_c15_outside_the_vocabulary() -> None:
    assert names(whole_chat(model(), [9999], plain_lps([9999]))) == [["", None]]
    asked = {"logprobs": True, "return_tokens_as_token_ids": True}
    assert names(whole_chat(model(), [9999], plain_lps([9999]), asked)) == [["token_id:9999", None]]


def test_c16_special_tokens_have_names() -> None:
    answer = whole_chat(model(), [104, 258], plain_lps([104, 258]))
    assert (content(answer), names(answer)) == ("h", [["h", [104]], ["<|im_end|>", b("<|im_end|>")]])


OUTSIDE = lp((65, -4.0, 7, [(65, -4.0, 7), (66, -0.5, 1), (67, -1.0, 2)]))


@pytest.mark.parametrize(("request_", "kept"), [({"top_logprobs": 2}, 2), ({"top_logprobs": 1}, 1), ({}, 0), ({"top_logprobs": -1}, 3)])
def test_c17_candidates_of_a_chat_are_cut(request_: dict[str, Any], kept: int) -> None:
    entry = whole_chat(model(), [65], OUTSIDE, {"logprobs": True, **request_})["choices"][0]["logprobs"]["content"][0]
    assert [t["token"] for t in entry["top_logprobs"]] == ["A", "B", "C"][:kept]


def test_c17_without_a_request_nothing_is_cut() -> None:
    entry = whole_chat(model(), [65], OUTSIDE)["choices"][0]["logprobs"]["content"][0]
    assert [t["token"] for t in entry["top_logprobs"]] == ["A", "B", "C"]


@pytest.mark.parametrize(("asked", "kept"), [(2, 3), (1, 2), (0, 1), (-1, 3)])
def test_c18_candidates_of_a_completion_are_cut(asked: int, kept: int) -> None:
    tops = whole_text(model(), [65], OUTSIDE, {"logprobs": asked})["choices"][0]["logprobs"]["top_logprobs"][0]
    assert list(tops) == ["A", "B", "C"][:kept]
    assert len(whole_text(model(), [65], OUTSIDE)["choices"][0]["logprobs"]["top_logprobs"][0]) == 3


def test_c21_nulls_stay_nulls() -> None:
    assert whole_chat(model(), [65])["choices"][0]["logprobs"] is None
    assert whole_chat(model(), [65], {"content": None})["choices"][0]["logprobs"] == {"content": None}


@pytest.mark.parametrize("override", [True, False])
def test_c22_hidden_reasoning_does_not_leak(override: bool) -> None:
    ids = [*b("a"), 260, *b("b")]
    request = {"logprobs": True, "include_reasoning": False, "return_token_ids": True, "return_tokens_as_token_ids": override}
    choice = whole_chat(model("RP"), ids, plain_lps(ids), request, prompt_token_ids=P1)["choices"][0]
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == (None, "b")
    assert (choice["logprobs"], choice["token_ids"]) == (None, None)


def test_c25_offsets_count_token_strings() -> None:
    ids = b("aé b")
    logprobs = whole_text(model(), ids, plain_lps(ids))["choices"][0]["logprobs"]
    assert (logprobs["tokens"], logprobs["text_offset"]) == (["a", "", "é", " ", "b"], [0, 1, 1, 2, 3])


def test_c26_offsets_count_placeholders() -> None:
    asked = {"logprobs": 1, "return_tokens_as_token_ids": True}
    logprobs = whole_text(model(), [104, 105, 258], plain_lps([104, 105, 258]), asked)["choices"][0]["logprobs"]
    assert logprobs["text_offset"] == [0, 12, 24]


def test_c28_legacy_strings_are_refused_with_their_place() -> None:
    legacy = {"content": [{"token": "token_id:72", "logprob": -1, "bytes": None, "top_logprobs": []}]}
    with pytest.raises(ApiError) as refused:
        whole_chat(model(), [72], legacy)
    assert (refused.value.status, refused.value.param) == (400, "body.generate_response.choices.0.logprobs.content.0.token_id")


def test_completions_renumber_their_choices_and_pass_prompt_logprobs() -> None:
    rows = [None, {"5": {"logprob": -1.5, "rank": 2, "decoded_token": "x"}}]
    two = [response(b("a"), prompt_logprobs=rows, kv_transfer_params={"a": 1}), response(b("b"), kv_transfer_params={"a": 2})]
    answer = derendered(model(), {"generate_responses": two, "prompt_tokens": [3, 4]}, "completion")
    assert [(c["index"], c["text"], c["prompt_logprobs"]) for c in answer["choices"]] == [(0, "a", rows), (1, "b", None)]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"], answer["kv_transfer_params"]) == (7, 9, None)


@pytest.mark.parametrize("field", ["prompt_tokens", "prompt_token_ids"])
def test_lists_go_with_the_responses(field: str) -> None:
    value: Any = [1, 2] if field == "prompt_tokens" else [[1], None]
    with pytest.raises(ApiError, match=field):
        derendered(model(), {"generate_responses": [response([97])], field: value}, "completion")


def test_an_answer_without_an_id_gets_one() -> None:
    answer = derendered(model(), {"generate_response": {"choices": []}})
    assert len(answer["id"]) == 16


def test_an_answer_cut_short_is_parsed_to_its_end() -> None:
    """No finish reason: what a parser holds back is let go all the same."""
    body = {"generate_response": response([*b("x"), 260, *b("a <tool")], finish=None), "prompt_token_ids": P1}
    tools = [{"type": "function", "function": {"name": "f"}}]
    choice = derendered(model("RP"), {**body, "chat_request": {"messages": HI, "tools": tools}})["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("a <tool", None)
