"""What a default may be, from the command line and from code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import ApiError, BadRequest
from inference.limits import check_ranges
from inference.protocol.generate import SamplingParams
from inference.resolve import BUILT_IN, FLAGS, TEMPLATE_KWARGS, VALUES
from tenants.defaults import COLUMNS, RULES, check, parse
from tenants.models import Defaults

GOOD: list[tuple[str, Any]] = [
    *((flag, state) for flag in FLAGS for state in (True, False)),
    *(("temperature", value) for value in (0, 0.0, 1, 2)),
    *(("top_p", value) for value in (0.001, 1)),
    *(("top_k", value) for value in (-1, 0, 1, 50)),
    *(("min_p", value) for value in (0, 0.5, 1)),
    *((name, value) for name in ("presence_penalty", "frequency_penalty") for value in (-2, 0, 2)),
    *(("repetition_penalty", value) for value in (0.1, 1, 3)),
    ("max_tokens", 1),
    *(("seed", value) for value in (0, 2**63 - 1)),
    *(("stop", value) for value in ([], ["\n\n"], ["a", "b"])),
    *((TEMPLATE_KWARGS, value) for value in ({}, {"a": {"b": [1, {"x.y": 2}]}, "c": None})),
]
NAN, INFINITY = float("nan"), float("inf")
BAD: list[tuple[str, Any]] = [
    *((flag, state) for flag in FLAGS for state in (0, 1, "true", "", None, [])),
    *(("temperature", value) for value in (-0.1, 2.1, True, "1", NAN, INFINITY, None)),
    *(("top_p", value) for value in (0, 1.1, NAN)),
    *(("top_k", value) for value in (-2, 1.5, True, 2**31)),
    *(("min_p", value) for value in (-0.1, 1.1)),
    *((name, value) for name in ("presence_penalty", "frequency_penalty") for value in (-2.1, 2.1, NAN)),
    *(("repetition_penalty", value) for value in (0, -1, INFINITY, NAN)),
    *(("max_tokens", value) for value in (0, -1, 1.0, 2**31)),
    *(("seed", value) for value in (-1, 2**63, 0.5)),
    *(("stop", value) for value in ("x", [""], [1], {}, ["x"] * 257)),
    *((TEMPLATE_KWARGS, value) for value in ([], "x", {"a.b": 1}, {"a": {"": 1}}, {"a": {"b.c": 1}})),
]


def test_every_field_has_a_rule_and_a_column() -> None:
    columns = {field.name for field in Defaults._meta.get_fields()}
    assert RULES.keys() == COLUMNS.keys() == {*BUILT_IN, TEMPLATE_KWARGS}
    assert set(COLUMNS.values()) <= columns


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_good_values(name: str, value: Any) -> None:
    check(name, value)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_values_are_refused_in_a_sentence_that_names_the_field(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=rf"^{name} must be .+, got .+\.$") as refused:
        check(name, value)
    assert refused.value.param == name


@given(st.sampled_from(sorted(RULES)), st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_a_check_ends_in_silence_or_in_a_bad_request(name: str, value: Any) -> None:
    try:
        check(name, value)
    except BadRequest as refused:
        assert refused.param == name  # noqa: PT017


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, value in GOOD if name in SamplingParams.__struct_fields__])
def test_a_good_default_is_good_in_a_request(name: str, value: Any) -> None:
    check_ranges(SamplingParams(**{name: value}))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, value in BAD if name in VALUES and type(value) in (int, float)])
def test_what_a_request_may_say_is_refused_as_a_default_for_a_reason(name: str, value: Any) -> None:
    """Out of range for a request too, but for two: a seed of -1 means none, and a column has an end."""
    wrong_type = name in ("top_k", "seed", "max_tokens") and type(value) is float
    if not wrong_type and (name, value) not in {("seed", -1), ("top_k", 2**31), ("max_tokens", 2**31)}:
        with pytest.raises(ApiError):
            check_ranges(SamplingParams(**{name: value}))


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(BadRequest, match="best_of is not a field"):
        check("best_of", 1)


@pytest.mark.parametrize(
    ("assignment", "parsed"),
    [
        ("temperature=0.2", {"temperature": 0.2}),
        ("stream_options.include_usage=true", {"stream_options.include_usage": True}),
        ("skip_special_tokens=false", {"skip_special_tokens": False}),
        ("seed=null", {"seed": None}),
        ("stop=###", {"stop": ["###"]}),
        ('stop="###"', {"stop": ["###"]}),
        ('stop=["a=b"]', {"stop": ["a=b"]}),
        ("stop=a=b", {"stop": ["a=b"]}),
        ("stop=[]", {"stop": []}),
        ("chat_template_kwargs.enable_thinking=false", {TEMPLATE_KWARGS: {"enable_thinking": False}}),
        ('chat_template_kwargs.a.b="x"', {TEMPLATE_KWARGS: {"a": {"b": "x"}}}),
        ('chat_template_kwargs={"a": 1}', {TEMPLATE_KWARGS: {"a": 1}}),
    ],
)
def test_an_assignment_is_a_name_and_json(assignment: str, parsed: dict[str, Any]) -> None:
    assert parse(assignment) == parsed


@pytest.mark.parametrize(
    ("assignment", "name"),
    [
        ("temperature", "temperature"),
        ("temperature=", "temperature"),
        ("temperature=hot", "temperature"),
        ("temperature=NaN", "temperature"),
        ("temperature=3", "temperature"),
        ("skip_special_tokens=True", "skip_special_tokens"),
        ("skip_special_tokens=yes", "skip_special_tokens"),
        ("stop=1", "stop"),
        ("stop=", "stop"),
        ("nonsense=1", "nonsense"),
        ("nonsense=x", "nonsense"),
        ("nonsense=null", "nonsense"),
        ("=1", ""),
        ("chat_template_kwargs.a=False", "chat_template_kwargs.a"),
        ("chat_template_kwargs.=1", "chat_template_kwargs"),
        ("chat_template_kwargs.a..b=1", "chat_template_kwargs"),
        ("chat_template_kwargs=[]", "chat_template_kwargs"),
    ],
)
def test_a_bad_assignment_names_its_field(assignment: str, name: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(assignment)
    assert refused.value.param == name
