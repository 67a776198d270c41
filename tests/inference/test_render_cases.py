"""Section A of the case list: requests into generate requests."""

from __future__ import annotations

import re
from typing import Any

import pytest

from inference.errors import ApiError, BadRequest, SchemaError
from inference.protocol.codec import encode
from inference.resolve import Layer
from tests.inference.samples import HI, P1, b, chat_render, completion_render, model

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]


def test_a1_a_chat_becomes_a_complete_generate_request() -> None:
    made = chat_render(model()).generate
    assert made.token_ids == P1
    assert made.sampling_params.max_tokens == 491
    assert (made.stream, made.output_mode, made.features, made.token_offsets, made.model) == (False, "tokens", None, None, None)


def test_a1_every_key_is_written() -> None:
    written = encode(chat_render(model()).generate).decode()
    for key in ("features", "token_offsets", "stream_options", "cache_salt", "kv_transfer_params", "reasoning_ended", "return_token_ids"):
        assert f'"{key}":null' in written


def test_a3_one_request_per_prompt() -> None:
    one = completion_render(model(), "Hi", request_id="cmpl-abc")
    assert [(r.generate.request_id, r.generate.token_ids) for r in one] == [("cmpl-abc", [72, 105])]
    assert one[0].generate.sampling_params.max_tokens == 16
    two = completion_render(model(), ["Hi", "Yo"], request_id="cmpl-abc")
    assert [r.generate.request_id for r in two] == ["cmpl-abc-0", "cmpl-abc-1"]


@pytest.mark.parametrize("fields", [{}, {"return_tokens_as_token_ids": None}])
def test_a5_the_override_leaves_no_key_where_it_is_not_set(fields: dict[str, Any]) -> None:
    context = chat_render(model(), **fields).generate.parse_context
    assert context is not None
    assert set(context) == {
        "tools", "tool_choice", "parallel_tool_calls", "include_reasoning", "chat_template_kwargs", "history_tool_call_cnt"}
    assert (context["tools"], context["tool_choice"], context["history_tool_call_cnt"]) == (None, "none", 0)
    assert context["parallel_tool_calls"] is True
    assert context["include_reasoning"] is True


@pytest.mark.parametrize("override", [True, False])
def test_a6_an_explicit_override_travels(override: bool) -> None:
    context = chat_render(model("R!"), return_tokens_as_token_ids=override).generate.parse_context
    assert context is not None
    assert context["return_tokens_as_token_ids"] is override


def test_a6_a_default_never_travels() -> None:
    yes = Layer("tenant", {"return_tokens_as_token_ids": True})
    context = chat_render(model("R!"), [yes]).generate.parse_context
    assert context is not None
    assert "return_tokens_as_token_ids" not in context


def test_a8_earlier_tool_calls_are_counted() -> None:
    def asks(*ids: str) -> dict[str, Any]:
        calls = [{"id": i, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}} for i in ids]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    says = {"role": "tool", "tool_call_id": "a", "content": "ok"}
    context = chat_render(model(), messages=[*HI, asks("a", "b"), says, says, asks("c"), says, *HI]).generate.parse_context
    assert context is not None
    assert context["history_tool_call_cnt"] == 3


def test_a9_template_kwargs_of_the_request_lie_over_the_servers() -> None:
    made = chat_render(model("RP"), chat_template_kwargs={"open_think": True}).generate
    assert made.token_ids == [*P1, 259, 10]
    assert made.reasoning_ended is False
    assert made.parse_context is not None
    assert made.parse_context["chat_template_kwargs"]["open_think"] is True
    assert made.reasoning_parser_kwargs == {"chat_template_kwargs": made.parse_context["chat_template_kwargs"]}
    server = Layer("server", {"chat_template_kwargs": {"open_think": True}})
    assert chat_render(model("R"), [server]).token_ids == [*P1, 259, 10]
    assert chat_render(model("R"), [server], chat_template_kwargs={"open_think": False}).token_ids == P1


def test_a10_stream_fields_are_copied() -> None:
    made = chat_render(model(), stream=True, stream_options={"include_usage": True}).generate
    assert made.stream is True
    assert made.stream_options is not None
    assert made.stream_options.include_usage is True
    assert chat_render(model(), stream_options={}).generate.stream_options is None
    with pytest.raises(BadRequest) as refused:
        chat_render(model(), stream_options={"include_usage": True})
    assert refused.value.param == "stream_options"


def test_a11_logprobs_null_and_zero_differ() -> None:
    def asked(**fields: Any) -> int | bool | None:
        return chat_render(model(), **fields).generate.sampling_params.logprobs

    assert (asked(logprobs=True, top_logprobs=3), asked(logprobs=True), asked()) == (3, 0, None)
    assert asked(logprobs=True, logprob_token_ids=[1]) is None
    assert completion_render(model(), "Hi", logprobs=2)[0].generate.sampling_params.logprobs == 2
    with pytest.raises(BadRequest) as refused:
        chat_render(model(), top_logprobs=3)
    assert refused.value.param == "top_logprobs"


def test_a12_sampling_values_travel_as_they_are() -> None:
    params = chat_render(model(), temperature=0.123, top_p=0.456, frequency_penalty=1.1, stop="X").generate.sampling_params
    assert (params.temperature, params.top_p, params.frequency_penalty, params.stop) == (0.123, 0.456, 1.1, ["X"])
    assert not re.search(rb'"_', encode(params))


def test_a13_offsets_count_code_points() -> None:
    made = completion_render(model(), "Hé", return_token_offsets=True)[0].generate
    assert (made.token_ids, made.token_offsets) == ([72, 195, 169], [[0, 1], [1, 2], [1, 2]])
    chat = chat_render(model(), return_token_offsets=True).generate
    assert chat.token_offsets is not None
    assert chat.token_offsets[:4] == [[0, 12], [12, 13], [13, 14], [14, 15]]


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"use_beam_search": True}, "use_beam_search"),
    ({"tools": []}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": TOOLS}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice"),
    ({"messages": []}, "messages"),
    ({"messages": [{"content": "x"}]}, "body.messages.0.role"),
    ({"messages": [{"role": "user", "content": None}]}, "body.messages.0.content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x" * 600}]}, "input_tokens"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"chat_template": "{{ 1 }}"}, "chat_template"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"top_logprobs": -2, "logprobs": True}, "top_logprobs"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 513}, "max_tokens"),
    ({"max_completion_tokens": 513}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"temperature": 3.0}, "temperature"),
    ({"top_p": 0.0}, "top_p"),
    ({"presence_penalty": 3.0}, "presence_penalty"),
    ({"repetition_penalty": 0.0}, "repetition_penalty"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"seed": 2**63}, "body.seed"),
    ({"stop": [""]}, "stop"),
    ({"bad_words": [""]}, "bad_words"),
    ({"logit_bias": {"abc": 1.0}}, "logit_bias"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": "a/b"}, "cache_salt"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"best_of": 2}, "best_of"),
    ({"length_penalty": 2.0}, "length_penalty"),
    ({"response_format": {"type": "nope"}}, "body.response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "body.response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "response_format"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
    ({"structured_outputs": {"json": {"uniqueItems": True}}}, "structured_outputs"),
    ({"logits_processors": ["x"]}, "logits_processors"),
    ({"functions": []}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"audio": {}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"mm_processor_kwargs": {}}, "mm_processor_kwargs"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSALS, ids=[f"{param}-{i}" for i, (_, param) in enumerate(REFUSALS)])
def test_a15_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        chat_render(model(), **fields)
    assert (refused.value.status, refused.value.param) == (400, param)


PROMPT_REFUSALS: list[tuple[Any, str]] = [
    (None, "prompt"),
    ("", "prompt"),
    ([], "prompt"),
    (["a", [1, 2]], "body.prompt.0"),
    ([1, -2], "body.prompt.1"),
    ([True, False], "body.prompt.0"),
    ([1.5], "body.prompt.0"),
    (["a"] * 1025, "prompt"),
    ([65] * 600, "input_tokens"),
    ([65] * 512, "input_tokens"),
]


@pytest.mark.parametrize(("prompt", "param"), PROMPT_REFUSALS)
def test_a15_prompts_that_are_none(prompt: Any, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        completion_render(model(), prompt)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("prompt", [["a", ""], [[]], [[1], []]])
def test_a15_an_empty_prompt_among_others_is_refused(prompt: Any) -> None:
    with pytest.raises(BadRequest, match="No token_ids rendered"):
        completion_render(model(), prompt)


@pytest.mark.parametrize(("fields", "param"), [({"suffix": "x"}, "suffix"), ({"logprobs": -2}, "logprobs")])
def test_a15_fields_of_completions_alone(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        completion_render(model(), "Hi", **fields)
    assert refused.value.param == param


@pytest.mark.parametrize(("choice", "skips"), [("auto", False), ("required", False), ("none", None)])
def test_a18_tools_keep_special_tokens_for_their_markers(choice: str, skips: bool | None) -> None:
    params = chat_render(model("RP"), tools=TOOLS, tool_choice=choice).generate.sampling_params
    assert params.skip_special_tokens is skips
    assert (params.structured_outputs is not None) == (choice == "required")


def test_an_integer_prompt_passes_verbatim() -> None:
    assert [r.token_ids for r in completion_render(model(), [[9999, 1], [2]])] == [[9999, 1], [2]]


def test_a_prompt_keeps_its_last_tokens_where_the_request_says_so() -> None:
    assert completion_render(model(), "abcdef", truncate_prompt_tokens=3)[0].token_ids == b("def")
    cut = completion_render(model(), [65] * 600, truncate_prompt_tokens=-1)[0].generate
    assert (len(cut.token_ids), cut.sampling_params.max_tokens) == (511, 1)
    offsets = completion_render(model(), "abcdef", truncate_prompt_tokens=2, return_token_offsets=True)[0].generate.token_offsets
    assert offsets == [[4, 5], [5, 6]]


def test_max_tokens_is_clamped_to_what_is_left() -> None:
    assert chat_render(model(), max_tokens=500).generate.sampling_params.max_tokens == 491
    assert chat_render(model(), max_completion_tokens=7, max_tokens=9).generate.sampling_params.max_tokens == 7
    tenant = Layer("tenant", {"max_tokens": 100_000})
    assert chat_render(model(), [tenant]).generate.sampling_params.max_tokens == 491


def test_an_echo_asks_for_the_prompts_logprobs() -> None:
    made = completion_render(model(), "Hi", echo=True, logprobs=2)[0]
    assert (made.generate.sampling_params.prompt_logprobs, made.echo_text) == (2, "Hi")
    alone = completion_render(model(), "Hi", echo=True, max_tokens=0)[0]
    assert alone.generate.sampling_params.max_tokens == 1
    assert completion_render(model(), [72, 105], echo=True)[0].echo_text == "Hi"


def test_a_final_message_can_be_left_open() -> None:
    messages = [*HI, {"role": "assistant", "content": "The capital "}]
    made = chat_render(model(), messages=messages, continue_final_message=True, add_generation_prompt=False, echo=True)
    assert made.prompt_text is not None
    assert made.prompt_text.endswith("<|im_start|>assistant\nThe capital ")
    assert made.echo_text == "The capital "


def test_text_parts_are_joined_and_arguments_parsed() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "user\na\nb<|im_end|>" in str(chat_render(model(), messages=[{"role": "user", "content": parts}]).prompt_text)
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{nope"}}
    with pytest.raises(BadRequest) as refused:
        chat_render(model(), messages=[*HI, {"role": "assistant", "tool_calls": [call]}])
    assert refused.value.param == "body.messages.1.tool_calls.0.function.arguments"


def test_transfer_parameters_travel_in_extra_args() -> None:
    params = chat_render(model(), kv_transfer_params={"a": 1}, vllm_xargs={"script": []}).generate.sampling_params
    assert params.extra_args == {"script": [], "kv_transfer_params": {"a": 1}}


def test_a_schema_error_is_told_from_a_value_that_cannot_be_honoured() -> None:
    with pytest.raises(SchemaError):
        chat_render(model(), messages=[{"role": 3, "content": "x"}])
