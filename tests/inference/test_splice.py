"""Token-exact conversations: exact, spliced and drifted prefixes, and where they first differ."""

from __future__ import annotations

from typing import Any

import pytest

from inference.errors import ApiError
from inference.protocol.generate import GenerateRequest
from inference.sampling import for_node
from tests.inference.samples import HI, P1, b, chat_render, model

ANSWER = {"role": "assistant", "content": "Hello"}
NEXT = [*HI, ANSWER, {"role": "user", "content": "More"}]
NEW = [10, 257, *b("user\nMore"), 258, 10, 257, *b("assistant\n")]


def rendered(prefix: list[int], name: str = "R", messages: Any = NEXT, **fields: Any) -> GenerateRequest:
    return chat_render(model(name), messages=messages, required_prefix_token_ids=prefix, **fields).generate


def told(generate: GenerateRequest) -> tuple[Any, Any]:
    return generate.prefix_match, generate.prefix_first_difference


def test_exact() -> None:
    prefix = [*P1, *b("Hello"), 258]
    generate = rendered(prefix, strict=True)
    assert told(generate) == ("exact", None)
    assert generate.token_ids == [*prefix, *NEW] == chat_render(model("R"), messages=NEXT).generate.token_ids


def test_a_prefix_cut_by_length_is_gone_on_from() -> None:
    prefix = [*P1, *b("Hello")]
    assert told(rendered(prefix)) == ("exact", None)


def test_other_tokens_of_the_same_text_are_kept() -> None:
    """SmolLM2's tokenizer has many ways to write a text; the model took one that nobody would render."""
    smol = model("smollm2")
    answer = smol.tokenizer.encode("Hel", add_special_tokens=False) + smol.tokenizer.encode("lo", add_special_tokens=False)
    assert answer != smol.tokenizer.encode("Hello", add_special_tokens=False)
    before = chat_render(smol, messages=HI).generate.token_ids
    end = smol.tokenizer.encode("<|im_end|>", add_special_tokens=False)
    prefix = [*before, *answer, *end]
    generate = rendered(prefix, "smollm2", strict=True)
    assert told(generate) == ("spliced", len(before))
    assert generate.token_ids[: len(prefix)] == prefix
    text = smol.tokenizer.decode(generate.token_ids)
    assert text == smol.tokenizer.decode(chat_render(smol, messages=NEXT).generate.token_ids)


@pytest.mark.parametrize("end", [[], [258], [258, 10]])
def test_what_the_template_would_not_render_is_kept_too(end: list[int]) -> None:
    prefix = [*P1, 259, *b("thought"), 260, *b("Hello"), *end]
    generate = rendered(prefix)
    assert told(generate) == ("drifted", len(P1))
    assert generate.token_ids == [*P1, 259, *b("thought"), 260, *b("Hello"), 258, *NEW]


def test_strict_refuses_drift() -> None:
    with pytest.raises(ApiError) as refused:
        rendered([*P1, *b("Other"), 258], strict=True)
    assert (refused.value.status, refused.value.param) == (409, "required_prefix_token_ids")
    assert f"position {len(P1)}" in refused.value.message


@pytest.mark.parametrize(("prefix", "fields", "param"), [
    ([], {}, "required_prefix_token_ids"),
    ([9999], {}, "required_prefix_token_ids"),
    ([1, 2], {"messages": HI}, "required_prefix_token_ids"),
    (P1, {"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
    (P1, {"return_token_offsets": True}, "return_token_offsets"),
    ([*P1, *b("x" * 600)], {}, "input_tokens"),
])
def test_what_cannot_be(prefix: list[int], fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        rendered(prefix, **{"messages": NEXT, **fields})
    assert (refused.value.status, refused.value.param) == (400, param)


def test_strict_alone_says_nothing() -> None:
    with pytest.raises(ApiError) as refused:
        chat_render(model("R"), strict=True)
    assert refused.value.param == "strict"


def test_nodes_are_not_told() -> None:
    sent = for_node(rendered([*P1, *b("Hello")]), model("R").tokenizer)
    assert told(sent) == told(chat_render(model("R")).generate)
