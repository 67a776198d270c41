"""The override rule: every layer in every state, policies, and the leaves of chat_template_kwargs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inference.errors import BadRequest
from inference.leaves import flatten, leaf, nested
from inference.resolve import BUILT_IN, FLAGS, RANGED, TEMPLATE_KWARGS, Effective, Layer, Policy, Source, resolve

SOURCES: tuple[Source, ...] = ("key", "tenant_model", "tenant", "model", "server")
FALSY = (False, 0, 0.0, "", [], {})
KWARG = f"{TEMPLATE_KWARGS}."

fields = st.sampled_from(sorted(BUILT_IN))
settings_of_a_layer = st.dictionaries(fields, st.sampled_from([*FALSY, True, 1, 0.7, "x", None]))


def layered(*values: Mapping[str, Any]) -> list[Layer]:
    """Layers from the innermost out; those that are not given say nothing."""
    return [Layer(source, value) for source, value in zip(SOURCES, values, strict=False)]


def one(name: str, request: Mapping[str, Any], *layers: Layer) -> tuple[Any, Source]:
    effective = resolve(request, layers)
    return effective[name], effective.sources[name]


def kwargs_of(*layers: Layer, request: Any = None) -> Effective:
    return resolve({} if request is None else {TEMPLATE_KWARGS: request}, layers)


# The order


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_in_every_state_of_every_layer(flag: str) -> None:
    for states in itertools.product((None, True, False), repeat=1 + len(SOURCES)):
        request, *defaults = states
        expected = next(
            ((state, source) for state, source in zip(states, ("request", *SOURCES), strict=True) if state is not None),
            (BUILT_IN[flag], "builtin"),
        )
        assert one(flag, {flag: request}, *layered(*({flag: state} for state in defaults))) == expected


@given(settings_of_a_layer, st.lists(settings_of_a_layer, max_size=len(SOURCES)))
def test_the_first_that_is_set_applies(request: dict[str, Any], defaults: list[dict[str, Any]]) -> None:
    effective = resolve(request, layered(*defaults))
    for name in BUILT_IN:
        said = [(values.get(name), source) for values, source in zip((request, *defaults), ("request", *SOURCES), strict=False)]
        expected = next(((value, source) for value, source in said if value is not None), (BUILT_IN[name], "builtin"))
        assert (effective[name], effective.sources[name]) == expected


@given(settings_of_a_layer, st.lists(settings_of_a_layer, max_size=len(SOURCES)))
def test_null_and_absent_are_the_same(request: dict[str, Any], defaults: list[dict[str, Any]]) -> None:
    without = {name: value for name, value in request.items() if value is not None}
    assert resolve(request, layered(*defaults)) == resolve(without, layered(*defaults))


@pytest.mark.parametrize("value", FALSY)
@pytest.mark.parametrize("name", BUILT_IN)
def test_nothing_falsy_is_taken_for_absent(name: str, value: Any) -> None:
    tenant = Layer("tenant", {name: "from the tenant"})
    assert one(name, {name: value}, tenant) == (value, "request")
    assert one(name, {}, Layer("key", {name: value}), tenant) == (value, "key")


def test_what_applies_can_be_explained() -> None:
    effective = resolve({"temperature": 0.0}, layered({}, {}, {TEMPLATE_KWARGS: {"a": {"b": 1}}}))
    assert effective.explain()["temperature"] == {"value": 0.0, "source": "request"}
    assert effective.differing() == {
        "temperature": {"value": 0.0, "source": "request"},
        f"{KWARG}a.b": {"value": 1, "source": "tenant"},
    }


# Enforced


def enforcing(source: Source, name: str, value: Any, *, reject: bool = False) -> Layer:
    return Layer(source, {name: value}, {name: Policy("enforced", reject)})


@given(fields, st.booleans(), st.sampled_from(SOURCES))
def test_an_enforced_value_beats_the_request(name: str, value: bool, source: Source) -> None:
    assert one(name, {name: not value}, Layer("key", {name: not value}), enforcing(source, name, value)) == (value, source)


@given(fields, st.booleans(), st.sampled_from([True, False, None]))
def test_a_rejecting_one_refuses_a_request_that_disagrees(name: str, value: bool, said: bool | None) -> None:
    layer = enforcing("tenant", name, value, reject=True)
    if said is None or said == value:
        assert one(name, {name: said}, layer) == (value, "tenant")
    else:
        with pytest.raises(BadRequest) as refused:
            resolve({name: said}, [layer])
        assert refused.value.param == name


def test_the_outermost_enforcing_layer_wins() -> None:
    key, tenant = enforcing("key", "temperature", 0.1, reject=True), enforcing("tenant", "temperature", 0.2)
    assert one("temperature", {"temperature": 1.0}, key, tenant) == (0.2, "tenant")


def test_enforcing_nothing_has_no_effect() -> None:
    empty = Layer("tenant", {}, {"temperature": Policy("enforced", reject=True)})
    assert one("temperature", {"temperature": 0.3}, empty) == (0.3, "request")


def test_a_key_cannot_enforce_its_way_out_of_the_tenants_range() -> None:
    key, tenant = enforcing("key", "max_tokens", 5000), Layer("tenant", {}, {"max_tokens": Policy("range", high=100)})
    assert one("max_tokens", {}, key, tenant) == (100, "tenant")


def test_a_keys_range_does_not_move_what_the_tenant_enforces() -> None:
    key, tenant = Layer("key", {}, {"max_tokens": Policy("range", high=10)}), enforcing("tenant", "max_tokens", 100)
    assert one("max_tokens", {}, key, tenant) == (100, "tenant")


# Ranges

numbers = st.integers(0, 50)
maybe = st.none() | numbers


@given(st.sampled_from(RANGED), numbers, maybe, maybe, st.booleans())
def test_a_range_clamps_or_refuses(name: str, said: int, low: int | None, high: int | None, reject: bool) -> None:
    assume(low is None or high is None or low <= high)
    within = (low is None or said >= low) and (high is None or said <= high)
    layer = Layer("tenant", {}, {name: Policy("range", reject, low, high)})
    if within:
        assert one(name, {name: said}, layer) == (said, "request")
    elif reject:
        with pytest.raises(BadRequest) as refused:
            resolve({name: said}, [layer])
        assert refused.value.param == name
    else:
        assert one(name, {name: said}, layer) == (low if low is not None and said < low else high, "tenant")


@given(st.lists(st.tuples(numbers, numbers).map(sorted), min_size=1, max_size=5), numbers)
def test_the_outermost_range_holds_whatever_the_inner_ones_say(ranges: list[list[int]], said: int) -> None:
    layers = [Layer(source, {}, {"n": Policy("range", False, *bounds)}) for source, bounds in zip(SOURCES, ranges, strict=False)]
    value, _ = one("n", {"n": said}, *layers)
    assert ranges[-1][0] <= value <= ranges[-1][1]
    if all(low <= said <= high for low, high in ranges):
        assert value == said


@pytest.mark.parametrize("reject", [False, True])
def test_as_many_tokens_as_fit_is_above_any_upper_bound(reject: bool) -> None:
    layer = Layer("tenant", {}, {"max_tokens": Policy("range", reject, high=64)})
    assert one("max_tokens", {}, layer) == (64, "tenant")


def test_a_default_outside_of_a_rejecting_range_is_clamped_and_not_refused() -> None:
    layers = layered({"max_tokens": 500}, {}, {})
    ranged = Layer("tenant", {}, {"max_tokens": Policy("range", reject=True, high=64)})
    assert one("max_tokens", {}, layers[0], ranged) == (64, "tenant")


def test_a_ranged_field_without_a_default_is_there_only_if_the_request_sets_it() -> None:
    assert "n" not in resolve({}, []).values
    assert one("n", {"n": 3}) == (3, "request")


# Forbidden


@given(fields | st.sampled_from(RANGED), st.sampled_from(FALSY), st.sampled_from(SOURCES))
def test_a_forbidden_field_may_have_a_default_but_no_request_sets_it(name: str, value: Any, source: Source) -> None:
    layer = Layer(source, {name: 1}, {name: Policy("forbidden")})
    with pytest.raises(BadRequest) as refused:
        resolve({name: value}, [layer])
    assert refused.value.param == name
    if name in BUILT_IN:
        assert one(name, {name: None}, layer) == (1, source)


# The leaves of chat_template_kwargs

scalars = st.sampled_from([*FALSY[:5], True, 1, "x", [1, 2], None])
trees = st.dictionaries(
    st.sampled_from("abc"), st.recursive(scalars, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6)
)
PATHS = ("a", "b.c", "b.d.e", "b.d.f")
shaped = st.dictionaries(st.sampled_from(PATHS), scalars)  # trees in which no leaf of one is a branch of another


def tree(at: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for path, value in at.items():
        place = made
        *branches, last = path.split(".")
        for branch in branches:
            place = place.setdefault(branch, {})
        place[last] = value
    return made


@given(st.lists(shaped, max_size=1 + len(SOURCES)))
def test_objects_merge_leaf_by_leaf(said: list[dict[str, Any]]) -> None:
    request, *defaults = said or [{}]
    effective = kwargs_of(*layered(*({TEMPLATE_KWARGS: tree(values)} for values in defaults)), request=tree(request))
    for path in PATHS:
        states = [(values.get(path), source) for values, source in zip((request, *defaults), ("request", *SOURCES), strict=False)]
        value, source = next(((value, source) for value, source in states if value is not None), (None, None))
        assert leaf(effective[TEMPLATE_KWARGS], path) == value
        assert effective.sources.get(KWARG + path) == source


@given(trees, st.lists(trees, max_size=5))
def test_any_trees_merge_without_a_trace_on_the_layers(request: dict[str, Any], defaults: list[dict[str, Any]]) -> None:
    layers = layered(*({TEMPLATE_KWARGS: values} for values in defaults))
    before = copy.deepcopy((request, defaults))
    effective = kwargs_of(*layers, request=request)
    assert (request, defaults) == before
    named = {name for name in effective.sources if name.startswith(KWARG)}
    assert named == {KWARG + path for path, _ in flatten(effective[TEMPLATE_KWARGS])}
    assert effective.explain().keys() >= named
    for path, value in flatten(request):
        if value != {}:
            assert leaf(effective[TEMPLATE_KWARGS], path) == value


def test_a_list_replaces_a_list() -> None:
    layers = layered({TEMPLATE_KWARGS: {"a": [1]}}, {TEMPLATE_KWARGS: {"a": [2, 3]}})
    assert kwargs_of(*layers)[TEMPLATE_KWARGS] == {"a": [1]}


def test_a_null_leaf_inherits_and_an_object_of_nulls_says_nothing() -> None:
    layer = Layer("tenant", {TEMPLATE_KWARGS: {"a": 1}})
    assert kwargs_of(layer, request={"a": None, "b": {"c": None}})[TEMPLATE_KWARGS] == {"a": 1}


def policing(values: dict[str, Any], on: str, kind: Any, *, reject: bool = False, source: Source = "tenant") -> Layer:
    return Layer(source, {TEMPLATE_KWARGS: values}, {on: Policy(kind, reject)})


@given(st.sampled_from(PATHS), scalars, scalars, trees)
def test_an_enforced_leaf_beats_whatever_the_request_says(path: str, value: Any, other: Any, request: dict[str, Any]) -> None:
    assume(value is not None)
    key = Layer("key", {TEMPLATE_KWARGS: nested(path, other)})
    effective = kwargs_of(key, policing(nested(path, value), KWARG + path, "enforced"), request=request)
    assert leaf(effective[TEMPLATE_KWARGS], path) == value
    assert effective.sources[KWARG + path] == "tenant"


def test_enforcing_leaves_the_other_leaves_free() -> None:
    layer = policing({"a": 1, "b": {"c": 2}}, f"{KWARG}b", "enforced")
    assert kwargs_of(layer, request={"a": 5, "b": {"c": 5, "d": 5}})[TEMPLATE_KWARGS] == {"a": 5, "b": {"c": 2, "d": 5}}


def test_enforcing_the_whole_object_enforces_every_leaf_of_the_layer() -> None:
    layer = policing({"a": 1, "b": {"c": 2}}, TEMPLATE_KWARGS, "enforced")
    assert kwargs_of(layer, request={"a": 5, "b": {"c": 5}, "x": 5})[TEMPLATE_KWARGS] == {"a": 1, "b": {"c": 2}, "x": 5}


@pytest.mark.parametrize("request_says", [{"b": {"c": 3}}, {"b": 3}, {"b": {"c": {"d": 3}}}])
def test_a_rejecting_leaf_refuses_what_disagrees_at_above_or_below_it(request_says: dict[str, Any]) -> None:
    layer = policing({"b": {"c": 2}}, f"{KWARG}b.c", "enforced", reject=True)
    with pytest.raises(BadRequest) as refused:
        kwargs_of(layer, request=request_says)
    assert refused.value.param == f"{KWARG}b.c"


@pytest.mark.parametrize("request_says", [{}, {"b": {"c": 2}}, {"b": {"c": None}}, {"b": {"x": 3}}, {"bc": 3}])
def test_a_rejecting_leaf_lets_pass_what_agrees_or_is_elsewhere(request_says: dict[str, Any]) -> None:
    layer = policing({"b": {"c": 2}}, f"{KWARG}b.c", "enforced", reject=True)
    assert leaf(kwargs_of(layer, request=request_says)[TEMPLATE_KWARGS], "b.c") == 2


def test_the_outermost_enforced_leaf_wins_and_alone_decides_on_refusal() -> None:
    key = policing({"a": 1}, f"{KWARG}a", "enforced", reject=True, source="key")
    tenant = policing({"a": 2}, f"{KWARG}a", "enforced")
    effective = kwargs_of(key, tenant, request={"a": 3})
    assert (effective[TEMPLATE_KWARGS], effective.sources[f"{KWARG}a"]) == ({"a": 2}, "tenant")


@pytest.mark.parametrize("on", [TEMPLATE_KWARGS, f"{KWARG}b", f"{KWARG}b.c"])
def test_a_forbidden_leaf_is_not_set_by_a_request(on: str) -> None:
    layer = policing({"b": {"c": 2}}, on, "forbidden")
    with pytest.raises(BadRequest) as refused:
        kwargs_of(layer, request={"b": {"c": 2}})
    assert refused.value.param == f"{KWARG}b.c"
    assert kwargs_of(layer, request={"b": {"c": None}})[TEMPLATE_KWARGS] == {"b": {"c": 2}}


def test_a_forbidden_leaf_is_not_set_by_replacing_what_holds_it() -> None:
    with pytest.raises(BadRequest):
        kwargs_of(policing({}, f"{KWARG}b.c", "forbidden"), request={"b": 1})
    assert kwargs_of(policing({}, f"{KWARG}b.c", "forbidden"), request={"b": {"d": 1}})[TEMPLATE_KWARGS] == {"b": {"d": 1}}
