"""THE override rule. One function merges defaults, and nothing else in the code base does.

    effective = the first that is set of:
        request > key > tenant for this model > tenant > model > server > built in

A field of a request has a value, or it has none: absent and null are one thing (None), while false, 0, "", [] and {} are values.
A tenant may go beyond defaults with a policy on a field:

* enforced: its value beats the request's, silently or by refusing a request that disagrees;
* range: a value outside [low, high] is clamped or refused;
* forbidden: a request may not set the field.

Among layers that enforce the same field the outermost wins (tenant over key), and its value stays within the ranges of the layers
around it: whoever may only change a key cannot loosen what binds its tenant.

Each leaf of chat_template_kwargs is a field of its own, named by its path: `chat_template_kwargs.thinking.budget`. A policy on a
path holds for every leaf below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from inference.errors import BadRequest
from inference.leaves import below, flatten, nested, overlap, overlay

FLAGS: Mapping[str, bool] = MappingProxyType({
    "return_tokens_as_token_ids": False,
    "include_reasoning": True,
    "skip_special_tokens": True,
    "include_stop_str_in_output": False,
    "return_token_ids": False,
    "parallel_tool_calls": True,
    "stream_options.include_usage": False,
    "spaces_between_special_tokens": True,
    "add_generation_prompt": True,
})
VALUES: Mapping[str, Any] = MappingProxyType({
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "max_tokens": None,  # what is left of the context; completions: 16
    "seed": None,
    "stop": (),
})
BUILT_IN: Mapping[str, Any] = MappingProxyType({**FLAGS, **VALUES})
TEMPLATE_KWARGS = "chat_template_kwargs"
RANGED = ("max_tokens", "n", "top_logprobs")

Source = Literal["request", "key", "tenant_model", "tenant", "model", "server", "builtin"]


@dataclass(frozen=True)
class Policy:
    """What a layer says of one field beyond its default. `reject` refuses a request that disagrees, instead of overruling it."""

    kind: Literal["enforced", "range", "forbidden"]
    reject: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Layer:
    """Defaults from one place. `values` holds only what is set there; `chat_template_kwargs` is a nested object of leaves."""

    source: Source
    values: Mapping[str, Any]
    policies: Mapping[str, Policy] = field(default_factory=dict)


@dataclass(frozen=True)
class Effective:
    """What applies, and per field the layer that it came from. Template kwargs are sourced leaf by leaf, under dotted names."""

    values: Mapping[str, Any]
    sources: Mapping[str, Source]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def explain(self) -> dict[str, dict[str, Any]]:
        """{field: {value, source}}, as `/v1/defaults` and `x-tokenry-effective` show it."""
        shown = {name: value for name, value in self.values.items() if name != TEMPLATE_KWARGS} | leaves(self.values)
        return {name: {"value": value, "source": self.sources[name]} for name, value in shown.items()}

    def differing(self) -> dict[str, dict[str, Any]]:
        """Only what is not as built in; what the ledger keeps."""
        return {name: shown for name, shown in self.explain().items() if shown["source"] != "builtin"}


def resolve(request: Mapping[str, Any], layers: Sequence[Layer], built_in: Mapping[str, Any] = BUILT_IN) -> Effective:
    """The effective value and source of every field that can be defaulted, and of every ranged field that the request sets.

    Args:
        request: the fields that the request sets, by dotted name; a None counts as not set.
        layers: from the innermost (key) to the outermost (server).
        built_in: what applies when nobody says anything.

    Raises:
        BadRequest: a policy refuses the request; `param` names the field.
    """
    request = {name: value for name, value in request.items() if value is not None}
    refuse_forbidden(request, layers)
    values, sources = first_set(request, layers, built_in)
    policed = {name for layer in layers for name in layer.policies}
    for name in [name for name in values if name in policed]:
        values[name], sources[name] = held(name, values[name], sources[name], request, layers)
    values[TEMPLATE_KWARGS], leaf_sources = merge_leaves(request, layers)
    return Effective(values, {**sources, **leaf_sources})


def first_set(
    request: Mapping[str, Any], layers: Sequence[Layer], built_in: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Source]]:
    """Per field the innermost value that is set, and where it is from: outermost first, each covers what is below."""
    values = {**built_in, **{name: None for name in RANGED if name in request and name not in built_in}}
    sources: dict[str, Source] = dict.fromkeys(values, "builtin")
    for source, said in (*((layer.source, layer.values) for layer in reversed(layers)), ("request", request)):
        for name, value in said.items():
            if value is not None and name in sources:
                values[name], sources[name] = value, source
    return values, sources


def held(name: str, value: Any, source: Source, request: Mapping[str, Any], layers: Sequence[Layer]) -> tuple[Any, Source]:
    """One field under its policies: an enforced value, else what is set, held within its range."""
    if enforcing := enforcing_layer(name, layers):
        around = layers[layers.index(enforcing) + 1 :]
        value, source = held_in_range(name, enforcing.values[name], enforcing.source, around)
        if enforcing.policies[name].reject and name in request and request[name] != value:
            raise overridden(name, value)
        return value, source
    return held_in_range(name, value, source, layers)


def enforcing_layer(name: str, layers: Sequence[Layer]) -> Layer | None:
    """The outermost layer that enforces a value of its own for the field."""
    for layer in reversed(layers):
        policy = layer.policies.get(name)
        if policy and policy.kind == "enforced" and layer.values.get(name) is not None:
            return layer
    return None


def held_in_range(name: str, value: Any, source: Source, layers: Sequence[Layer]) -> tuple[Any, Source]:
    """The value, clamped into every layer's range for it; a request outside of a rejecting one is refused."""
    for layer in layers:
        policy = layer.policies.get(name)
        if policy is None or policy.kind != "range":
            continue
        held = clamp(value, policy)
        if held == value:
            continue
        if policy.reject and source == "request":
            raise BadRequest(f"{name} must be {bounds(policy)} for this tenant, got {value!r}.", name)
        value, source = held, layer.source
    return value, source


def clamp(value: Any, policy: Policy) -> Any:
    """None stands for "as much as fits", so an upper bound takes its place."""
    if value is None:
        return value if policy.high is None else int(policy.high)
    if policy.low is not None and value < policy.low:
        return type(value)(policy.low)
    if policy.high is not None and value > policy.high:
        return type(value)(policy.high)
    return value


def bounds(policy: Policy) -> str:
    low, high = (None if bound is None else f"{bound:g}" for bound in (policy.low, policy.high))
    if low is not None and high is not None:
        return f"between {low} and {high}"
    return f"at least {low}" if low is not None else f"at most {high}"


def overridden(name: str, value: Any) -> BadRequest:
    return BadRequest(f"{name} is set to {value!r} for this tenant and cannot be overridden.", name)


def refuse_forbidden(request: Mapping[str, Any], layers: Sequence[Layer]) -> None:
    forbidden = [name for layer in layers for name, policy in layer.policies.items() if policy.kind == "forbidden"]
    if not forbidden:
        return
    for said in (*(name for name in request if name != TEMPLATE_KWARGS), *leaves(request)):
        if any(overlap(said, name) for name in forbidden):
            raise BadRequest(f"{said} may not be set by requests of this tenant.", said)


def merge_leaves(request: Mapping[str, Any], layers: Sequence[Layer]) -> tuple[dict[str, Any], dict[str, Source]]:
    """chat_template_kwargs of all layers, outermost first, so that the innermost leaf stays; then the enforced ones over all.

    Lists are leaves: they replace.
    """
    merged: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    if all(values.get(TEMPLATE_KWARGS) is None for values in (request, *(layer.values for layer in layers))):
        return merged, sources
    for layer in (*reversed(layers), Layer("request", request), *enforced_leaves(request, layers)):
        kwargs = layer.values.get(TEMPLATE_KWARGS)
        overlay(merged, {} if kwargs is None else kwargs)
        sources |= dict.fromkeys(leaves(layer.values), layer.source)
    present = leaves({TEMPLATE_KWARGS: merged})
    return merged, {name: source for name, source in sources.items() if name in present}


def enforced_leaves(request: Mapping[str, Any], layers: Sequence[Layer]) -> list[Layer]:
    """Each leaf that the outermost layer to enforce it holds fast, as a layer of its own.

    Raises:
        BadRequest: a rejecting policy, and the request says otherwise, be it by what it puts above or below the leaf.
    """
    said = leaves(request)
    held: dict[str, Layer] = {}
    for layer in reversed(layers):
        for name, value in leaves(layer.values).items():
            rules = [policy for on, policy in layer.policies.items() if policy.kind == "enforced" and below(name, on)]
            if not rules or any(overlap(name, other) for other in held):
                continue
            if any(rule.reject for rule in rules) and any(overlap(name, other) and (name, value) != (other, said[other]) for other in said):
                raise overridden(name, value)
            held[name] = Layer(layer.source, nested(name, value))
    return list(held.values())


def leaves(values: Mapping[str, Any]) -> dict[str, Any]:
    """The template kwargs of a layer or request, by dotted name."""
    kwargs = values.get(TEMPLATE_KWARGS)
    return {} if kwargs is None else {f"{TEMPLATE_KWARGS}.{path}": value for path, value in flatten(kwargs)}
