"""Chat templates as Hugging Face renders them: Jinja's immutable sandbox, with the filters and functions that templates rely on.

A template may come with the request, where the server trusts that. It is code of somebody else either way: the sandbox keeps it from
attributes that lead out, and every failure inside it is the request's fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inference.errors import BadRequest

CUT_MARK = "\ue000\ue001\ue000"  # private-use characters: nothing else in a rendered prompt looks like it


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The prompt.

    Raises:
        BadRequest: the template does not compile, raises, or reaches for what the sandbox forbids.
    """
    try:
        return compiled(template).render(variables)
    except Exception as exc:  # a template is code, and any failure of it is the request's or the template's, never the server's
        raise BadRequest(f"The chat template cannot be applied to these messages: {exc}", "messages") from None


def render_open_ended(template: str, messages: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
    """The prompt cut after the last message's content, so that the model goes on with it."""
    last = messages[-1]
    if not isinstance(last.get("content"), str):
        raise BadRequest("continue_final_message needs a final message with text content.", "continue_final_message")
    marked = [*messages[:-1], {**last, "content": last["content"] + CUT_MARK}]
    head, found, _ = render(template, {**variables, "messages": marked}).rpartition(CUT_MARK)
    if not found:
        raise BadRequest("continue_final_message is set, but the chat template leaves out the final message.", "continue_final_message")
    return head


@lru_cache(maxsize=64)
def compiled(template: str) -> Template:
    """Compiling takes milliseconds and rendering microseconds."""
    return environment().from_string(template)


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's part for training; here its body is simply rendered."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=1)
def environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
) -> str:
    """Unlike Jinja's own filter it escapes no HTML: the model would read `\\u003c` for `<`."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
