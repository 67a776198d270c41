"""What a field of a layer of defaults inherits, in words for whoever edits it."""

from __future__ import annotations

import json
from typing import Any

from inference.resolve import BUILT_IN, TEMPLATE_KWARGS, Effective, Source, enforcing_layer, resolve
from tenants import selectors
from tenants.defaults import COLUMNS
from tenants.models import Defaults

PLACES: dict[Source, str] = {
    "key": "the key",
    "tenant_model": "the tenant, for this model",
    "tenant": "the tenant",
    "model": "the model",
    "server": "the server",
    "builtin": "built in",
}
NOT_SET = {"max_tokens": "what is left of the context", "seed": "a random one", "stop": "none"}


def inherited(row: Defaults) -> dict[str, str]:
    """Per column, what applies where the row says nothing, and where that comes from."""
    above = selectors.layers_above(row)
    effective = resolve({}, above)
    texts = {COLUMNS[name]: text(name, effective[name], effective.sources[name]) for name in BUILT_IN}
    for name in BUILT_IN:
        if layer := enforcing_layer(name, above):
            texts[COLUMNS[name]] = f"fixed to {words(name, layer.values[name])} by {PLACES[layer.source]}: a value here has no effect"
    return {**texts, TEMPLATE_KWARGS: leaves(effective)}


def text(name: str, value: Any, source: Source) -> str:
    return f"inherits: {words(name, value)} ({PLACES[source]})"


def words(name: str, value: Any) -> str:
    if value is None or value == ():
        return NOT_SET[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False)


def leaves(effective: Effective) -> str:
    """Every inherited leaf, as its dotted name has it."""
    prefix = f"{TEMPLATE_KWARGS}."
    shown = {name.removeprefix(prefix): item for name, item in effective.explain().items() if name.startswith(prefix)}
    parts = (f"{name} = {json.dumps(item['value'], ensure_ascii=False)} ({PLACES[item['source']]})" for name, item in shown.items())
    return f"inherits: {'; '.join(parts) or 'nothing'}"
