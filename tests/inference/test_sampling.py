"""Sampling parameters: what is written, what a node is sent, and what a node makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inference.errors import ApiError, BadRequest
from inference.protocol import codec
from inference.protocol.engine import Sampling
from inference.protocol.generate import GenerateRequest, SamplingParams
from inference.sampling import check_generate_request, engine_sampling, for_node
from tests.inference.samples import P1, chat_render, completion_render, model

TOKENS_ONLY = replace(model(), loaded_tokenizer=None)


def full(params: Any = None, to: Any = None, scripted: bool = False, prompt: Any = None) -> Sampling:
    made = codec.convert(SamplingParams, {} if params is None else params)
    ids = P1 if prompt is None else prompt
    return engine_sampling(made, prompt_token_ids=ids, model=model() if to is None else to, scripted=scripted)


def test_an_empty_object_takes_every_default() -> None:
    assert full() == Sampling(max_tokens=491, eos_token_ids=(258,))


def test_f5_max_tokens_absent_is_what_is_left() -> None:
    assert [full({"max_tokens": value}).max_tokens for value in (16, 491, 492, 100_000, None)] == [16, 491, 491, 491, 491]


@pytest.mark.parametrize(("given", "kept"), [(0.0, 0.0), (0.001, 0.01), (0.01, 0.01), (0.5, 0.5), (2.0, 2.0)])
def test_a_tiny_temperature_is_raised(given: float, kept: float) -> None:
    assert full({"temperature": given}).temperature == kept


def test_values_that_mean_off() -> None:
    made = full({"top_k": -1, "seed": -1, "logprobs": False})
    assert (made.top_k, made.seed, made.logprobs) == (0, None, None)
    assert full({"logprobs": True}).logprobs == 1
    assert full({"logprob_token_ids": [1, 2]}).logprobs == 0


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": 257, "temperature": 1.0}, "n"),
    ({"n": 2, "temperature": 0.0}, "n"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"frequency_penalty": -2.1}, "frequency_penalty"),
    ({"repetition_penalty": 0.0}, "repetition_penalty"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 0.0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 3, "max_tokens": 2}, "min_tokens"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": -2}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"prompt_logprob_token_ids": [[1]]}, "prompt_logprob_token_ids"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["x"] * 257}, "stop"),
    ({"stop": ["a"], "detokenize": False}, "stop"),
    ({"stop_token_ids": [266]}, "stop_token_ids"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
    ({"logprob_token_ids": [266]}, "logprob_token_ids"),
    ({"logit_bias": {"x": 1.0}}, "logit_bias"),
    ({"logit_bias": {"266": 1.0}}, "logit_bias"),
    ({"bad_words": [""]}, "bad_words"),
    ({"stream_interval": 0}, "stream_interval"),
    ({"output_kind": 9}, "body.sampling_params.output_kind"),
    ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs"),
    ({"structured_outputs": {"json": {}}, "ignore_eos": True}, "ignore_eos"),
    ({"structured_outputs": {"json": {}}, "min_tokens": 2}, "min_tokens"),
    ({"extra_args": {"script": []}}, "extra_args.script"),
    ({"extra_args": {"kv_transfer_params": {"a": 1}}}, "extra_args.kv_transfer_params"),
    ({"extra_args": {"bad_words_token_ids": [[]]}}, "extra_args.bad_words_token_ids"),
    ({"extra_args": {"bad_words_token_ids": [[999]]}}, "bad_words"),
]


@pytest.mark.parametrize(("params", "param"), REFUSALS, ids=[f"{param}-{i}" for i, (_, param) in enumerate(REFUSALS)])
def test_what_a_node_cannot_honour_is_refused_by_name(params: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        full(params)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_a_null_transfer_is_none() -> None:
    full({"extra_args": {"kv_transfer_params": None}})


@pytest.mark.parametrize("prompt", [[65] * 512, [266], [65, -1]])
def test_a_prompt_must_fit_and_lie_in_the_vocabulary(prompt: list[int]) -> None:
    with pytest.raises(BadRequest) as refused:
        full(prompt=prompt)
    assert refused.value.param == "token_ids"


def test_the_longest_prompt_leaves_one_token() -> None:
    assert full(prompt=[65] * 511).max_tokens == 1


def test_the_whole_vocabulary_where_the_server_allows_it() -> None:
    open_to_all = replace(model(), max_logprobs=-1)
    assert full({"logprobs": -1, "prompt_logprobs": 200}, open_to_all).logprobs == -1


def test_logit_bias_comes_by_id_and_clamped() -> None:
    assert full({"logit_bias": {"5": 200.0, "7": -1.5}}).logit_bias == {5: 100.0, 7: -1.5}


def test_f4_stop_strings_on_a_tokens_only_node() -> None:
    with pytest.raises(BadRequest) as refused:
        full({"stop": ["x"]}, TOKENS_ONLY)
    assert refused.value.param == "stop"
    assert full({"stop_token_ids": [104]}, TOKENS_ONLY).stop_token_ids == (258, 104)


def test_on_a_tokens_only_node_eos_is_a_stop_token() -> None:
    assert (full({}, TOKENS_ONLY).eos_token_ids, full({}, TOKENS_ONLY).stop_token_ids) == ((), (258,))
    assert full({"ignore_eos": True}, TOKENS_ONLY).stop_token_ids == ()


def test_bad_words_as_ids() -> None:
    assert full({"bad_words": ["ab"]}).bad_words_token_ids == ((97, 98),)
    assert full({"bad_words": ["ab"], "extra_args": {"bad_words_token_ids": [[1, 2]]}}, TOKENS_ONLY).bad_words_token_ids == ((1, 2),)
    with pytest.raises(BadRequest) as refused:
        full({"bad_words": ["ab"]}, TOKENS_ONLY)
    assert refused.value.param == "bad_words"


def test_a_word_after_a_space_is_another_token() -> None:
    spaced = engine_sampling(SamplingParams(bad_words=["Hello"]), prompt_token_ids=[1], model=model("smollm2"))
    tokenizer = model("smollm2").tokenizer
    assert [tokenizer.decode(ids) for ids in spaced.bad_words_token_ids] == ["Hello", " Hello"]


@pytest.mark.parametrize("script", [[{"ids": [1]}], '[{"ids": [1]}]'])
def test_a_script_may_be_json_text(script: Any) -> None:
    assert full({"extra_args": {"script": script}}, scripted=True).script == [{"ids": [1]}]


def test_a_script_that_is_no_json() -> None:
    with pytest.raises(BadRequest) as refused:
        full({"extra_args": {"script": "["}}, scripted=True)
    assert refused.value.param == "extra_args.script"


def test_what_a_node_is_sent() -> None:
    """Ids in, ids out: stop strings and flags of the text stay here, bad words go as ids, and the caller's own request is left as it is."""
    fields: dict[str, Any] = {"stop": ["x"], "include_stop_str_in_output": True, "skip_special_tokens": False, "bad_words": ["ab"]}
    rendered = chat_render(model(), **fields).generate
    sent = for_node(rendered, model().tokenizer)
    assert sent.sampling_params.extra_args == {"bad_words_token_ids": [[97, 98]]}
    assert (sent.sampling_params.stop, sent.sampling_params.skip_special_tokens, sent.parse_context) == (None, None, None)
    assert (sent.stream, sent.output_mode) == (True, "tokens")
    assert (rendered.sampling_params.stop, rendered.sampling_params.extra_args, rendered.stream) == (["x"], None, False)


def test_what_is_rendered_is_what_is_generated() -> None:
    """The handoff: every value survives the way over the wire."""
    fields: dict[str, Any] = {
        "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "presence_penalty": 0.5, "frequency_penalty": -0.5, "seed": 1,
        "repetition_penalty": 1.1, "n": 2, "stop_token_ids": [10], "ignore_eos": True, "min_tokens": 2, "max_tokens": 20,
        "logit_bias": {"100": 5.0}, "allowed_token_ids": [1, 2], "logprobs": 3}
    body = codec.encode(completion_render(model(), "Hi", **fields)[0].generate)
    params = codec.decode(GenerateRequest, body).sampling_params
    made = engine_sampling(params, prompt_token_ids=[72, 105], model=model())
    expected = Sampling(
        n=2, temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.1,
        seed=1, max_tokens=20, min_tokens=2, eos_token_ids=(258,), stop_token_ids=(10,), ignore_eos=True, logprobs=3,
        logit_bias={100: 5.0}, allowed_token_ids=(1, 2))
    assert made == expected


def test_a_default_of_16_is_written() -> None:
    """vLLM leaves it out, and its generate then reads "as much as fits"."""
    assert b'"max_tokens":16' in codec.encode(completion_render(model(), "Hi")[0].generate)


@pytest.mark.parametrize(("fields", "param"), [
    ({"features": {}}, "features"),
    ({"content_parts": []}, "content_parts"),
    ({"cache_salt": "a@b"}, "cache_salt"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": "x" * 129}, "cache_salt"),
    ({"kv_transfer_params": {}}, "kv_transfer_params"),
    ({"output_mode": "text", "sampling_params": {"detokenize": False}}, "output_mode"),
    ({"reasoning_parser_kwargs": {"foo": 1}}, "body.reasoning_parser_kwargs"),
    ({"model": "nope"}, "model"),
])
def test_generate_requests_that_cannot_be_honoured(fields: dict[str, Any], param: str) -> None:
    request = codec.convert(GenerateRequest, {"token_ids": [1], "sampling_params": {}, **fields})
    with pytest.raises(ApiError) as refused:
        check_generate_request(request, model())
    assert refused.value.param == param


@pytest.mark.parametrize("mode", ["text", "derender"])
def test_f3_text_needs_a_tokenizer(mode: str) -> None:
    request = codec.convert(GenerateRequest, {"token_ids": [1], "sampling_params": {}, "output_mode": mode})
    check_generate_request(request, model())
    with pytest.raises(BadRequest) as refused:
        check_generate_request(request, TOKENS_ONLY)
    assert refused.value.param == "output_mode"
