"""What defaults come to before they are saved: each field's value in effect, what saving would change, and what a request becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inference.protocol.chat import ChatCompletionRequest
from inference.protocol.codec import convert, decode
from inference.render import chat_settings
from inference.resolve import BUILT_IN, RANGED, TEMPLATE_KWARGS, Effective, Layer, Policy, Source, enforcing_layer, leaves, resolve
from tenants import selectors
from tenants.defaults import COLUMNS, LEAF_PREFIX
from tenants.inheritance import NOT_SET, PLACES, words
from tenants.models import Defaults

ORDER: Sequence[Source] = ("key", "tenant_model", "tenant")
NOTHING = "nothing"
POLICY_ON = "policy on "


@dataclass(frozen=True)
class Outcome:
    """A field of a request: what was asked for, what it becomes, and why. `overruled`: the request got something else."""

    field: str
    asked: str
    becomes: str
    why: str
    overruled: bool = False


@dataclass(frozen=True)
class Difference:
    field: str
    before: str
    after: str


def stack(row: Defaults, layer: Layer, model: str) -> tuple[Layer, ...]:
    """All layers under a request to a model, with `layer` in the row's place. A row that is for one model settles the model."""
    model = row.model or model
    others = selectors.tenant_defaults(row.tenant).filter(key=None, model__in=["", model]).exclude(pk=row.pk)
    found = {other.source: other.layer() for other in others} | {row.source: layer}
    return (*(found[source] for source in ORDER if source in found), *selectors.outer_layers(model))


def in_effect(layers: Sequence[Layer], own: Source) -> dict[str, str]:
    """Per column, what a request that sets nothing would get. `own` is the layer that is being edited."""
    effective = resolve({}, layers)
    texts = {
        name: f"{shown(name, item['value'])} ({'set here' if item['source'] == own else PLACES[item['source']]})"
        for name, item in effective.explain().items()
    }
    kwargs = "; ".join(f"{name} = {texts[name]}" for name in leaves(effective.values))
    shorter = kwargs.replace(LEAF_PREFIX, "")
    return {COLUMNS[name]: f"in effect: {texts[name]}" for name in BUILT_IN} | {TEMPLATE_KWARGS: f"in effect: {shorter or NOTHING}"}


def outcomes(body: bytes, layers: Sequence[Layer]) -> list[Outcome]:
    """What becomes of a chat request, field by field: what it says first, then what applies without its saying.

    Raises:
        BadRequest, SchemaError: the request is refused; `param` names the field.
    """
    given = settings_of(body)
    effective = resolve(given, layers)
    explained = effective.explain()
    said = [name for name in (*given, *leaves(given)) if name in explained]
    others = [name for name, value in explained.items() if name not in said and value["source"] != "builtin"]
    return [outcome(name, given, effective, layers) for name in dict.fromkeys((*said, *others))]


def model_of(body: bytes) -> str:
    """The model that a request names; "" where it names none.

    Raises:
        SchemaError: not a JSON object.
    """
    name = decode(dict[str, Any], body, root="request").get("model")
    return name if isinstance(name, str) else ""


def settings_of(body: bytes) -> dict[str, Any]:
    """A request without messages will do: they are not what is asked about."""
    fields = decode(dict[str, Any], body, root="request")
    return chat_settings(convert(ChatCompletionRequest, {"messages": [], **fields}, root="request"))


def outcome(name: str, given: Mapping[str, Any], effective: Effective, layers: Sequence[Layer]) -> Outcome:
    asked = {**given, **leaves(given)}.get(name)
    item = effective.explain()[name]
    overruled = asked is not None and item["source"] != "request"
    asked_text = "not set" if asked is None else shown(name, asked)
    return Outcome(name, asked_text, shown(name, item["value"]), why(name, item["source"], layers, overruled), overruled)


def why(name: str, source: Source, layers: Sequence[Layer], overruled: bool) -> str:
    if source == "request":
        return "the request says so"
    if source == "builtin":
        return "nobody says anything: built in"
    policy = ruling(name, source, layers)
    if policy is not None and policy.kind == "enforced":
        return f"{PLACES[source]} fixes it" + (", whatever the request says" if overruled else "")
    if policy is not None and policy.kind == "range":
        return f"{PLACES[source]} holds it within its range"
    return f"the request says nothing; {PLACES[source]} does"


def ruling(name: str, source: Source, layers: Sequence[Layer]) -> Policy | None:
    """The policy by which a layer settled the field, if it was by one."""
    holder = enforcing_layer(name, layers)
    if holder is not None and holder.source == source:
        return holder.policies[name]
    layer = next(layer for layer in layers if layer.source == source)
    policy = layer.policies.get(name)
    if policy is not None and policy.kind == "range" and name in RANGED:
        return policy
    return next((rule for on, rule in layer.policies.items() if rule.kind == "enforced" and f"{name}.".startswith(f"{on}.")), None)


def differences(before: Layer, after: Layer) -> list[Difference]:
    """What would change: values, each leaf of the template's, and policies."""
    old, new = flat(before), flat(after)
    changed = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    return [Difference(name, old.get(name, absent(name)), new.get(name, absent(name))) for name in changed]


def absent(name: str) -> str:
    return "none" if name.startswith(POLICY_ON) else "inherits"


def flat(layer: Layer) -> dict[str, str]:
    values = {name: shown(name, value) for name, value in layer.values.items() if name != TEMPLATE_KWARGS}
    inner = {name: shown(name, value) for name, value in leaves(layer.values).items()}
    return values | inner | {f"{POLICY_ON}{name}": described(policy) for name, policy in layer.policies.items()}


def described(policy: Policy) -> str:
    if policy.kind == "forbidden":
        return "forbidden"
    disagreeing = "a request that disagrees is refused" if policy.reject else "a request that disagrees is overruled"
    low, high = ("any" if bound is None else f"{bound:g}" for bound in (policy.low, policy.high))
    return f"{policy.kind}{f' from {low} to {high}' if policy.kind == 'range' else ''}; {disagreeing}"


def shown(name: str, value: Any) -> str:
    return words(name, value) if value not in (None, ()) or name in NOT_SET else NOTHING
