"""What a default may be: its column, its range, and how it is written on a command line. The ranges are those of a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inference.errors import BadRequest
from inference.leaves import nested
from inference.resolve import BUILT_IN, FLAGS, RANGED, TEMPLATE_KWARGS, VALUES

COLUMNS: Mapping[str, str] = {name: name.replace(".", "_") for name in BUILT_IN} | {TEMPLATE_KWARGS: TEMPLATE_KWARGS}
FLAG_COLUMNS = tuple(COLUMNS[name] for name in FLAGS)
VALUE_COLUMNS = tuple(COLUMNS[name] for name in VALUES)
NAMES: Mapping[str, str] = {column: name for name, column in COLUMNS.items()}
LEAF_PREFIX = f"{TEMPLATE_KWARGS}."
LARGEST_INT = 2**31 - 1
MAX_STOPS = 256  # as in a request
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Rule:
    """What a field takes, in words for the error and as a test."""

    words: str
    accepts: Callable[[Any], bool]


def number(words: str, within: Callable[[float], bool]) -> Rule:
    """NaN is within nothing, as every comparison with it is false."""
    return Rule(words, lambda value: type(value) in (int, float) and within(value))


def whole(words: str, low: int, high: int) -> Rule:
    return Rule(words, lambda value: type(value) is int and low <= value <= high)


def is_stop(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_STOPS and all(isinstance(item, str) and item for item in value)


def is_kwargs(value: Any) -> bool:
    """A dot in a key would make its leaf's name ambiguous."""
    if not isinstance(value, dict):
        return False
    return all(key and "." not in key and (is_kwargs(item) if isinstance(item, dict) else True) for key, item in value.items())


PENALTY = number("a number from -2 to 2", lambda value: -2 <= value <= 2)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(FLAGS, Rule("true or false", lambda value: isinstance(value, bool))),
    "temperature": number("a number from 0 to 2", lambda value: 0 <= value <= 2),
    "top_p": number("a number above 0 and up to 1", lambda value: 0 < value <= 1),
    "top_k": whole("a whole number, with 0 or -1 for no limit", -1, LARGEST_INT),
    "min_p": number("a number from 0 to 1", lambda value: 0 <= value <= 1),
    "presence_penalty": PENALTY,
    "frequency_penalty": PENALTY,
    "repetition_penalty": number("a number above 0", lambda value: 0 < value < float("inf")),
    "max_tokens": whole("a whole number from 1", 1, LARGEST_INT),
    "seed": whole("a whole number from 0", 0, LARGEST_SEED),
    "stop": Rule(f"a list of at most {MAX_STOPS} strings, none of them empty", is_stop),
    TEMPLATE_KWARGS: Rule("an object whose keys have no dots", is_kwargs),
}


def check(name: str, value: Any) -> None:
    """Refuse what a request could not say either.

    Raises:
        BadRequest: no such field, or a value that it does not take; `param` names the field.
    """
    rule = rule_of(name)
    if not rule.accepts(value):
        raise BadRequest(f"{name} must be {rule.words}, got {value!r:.100}.", name)


def rule_of(name: str) -> Rule:
    if name not in RULES:
        raise BadRequest(f"{name} is not a field that can have a default. Fields: {', '.join(RULES)}.", name)
    return RULES[name]


def parse(assignment: str) -> dict[str, Any]:
    """`FIELD=VALUE` as {field: value}; a leaf `chat_template_kwargs.a.b=1` as {chat_template_kwargs: {a: {b: 1}}}.

    VALUE is JSON. A bare word is a string where the field is one, and refused elsewhere: `False` would be a string, and true.
    """
    name, equals, text = assignment.partition("=")
    if not equals:
        raise BadRequest(f"{name} has no value; write {name}=VALUE.", name)
    value = parse_value(name, text)
    if name.startswith(LEAF_PREFIX):
        name, value = TEMPLATE_KWARGS, nested(name.removeprefix(LEAF_PREFIX), value)
    elif name == "stop" and isinstance(value, str):
        value = [value]
    if value is not None:
        check(name, value)
    return {name: value}


def parse_value(name: str, text: str) -> Any:
    leaf_words = 'JSON, with quotes around a string ("...")'
    words = leaf_words if name.startswith(LEAF_PREFIX) else rule_of(name).words
    try:
        return json.loads(text, parse_constant=lambda word: word)
    except json.JSONDecodeError:
        if name == "stop":
            return text
        raise BadRequest(f"{name} must be {words}, got {text!r:.100}.", name) from None


def may_have_policy(name: str) -> bool:
    return name in COLUMNS or name in RANGED or (name.startswith(LEAF_PREFIX) and all(name.split(".")))
