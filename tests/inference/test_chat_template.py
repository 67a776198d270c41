"""Chat templates: what they may use, and that nothing in them breaks the server."""

from __future__ import annotations

from typing import Any

import pytest

from inference.chat_template import render, render_open_ended
from inference.errors import BadRequest


def test_json_is_written_as_the_model_should_read_it() -> None:
    assert render("{{ x | tojson }}", {"x": {"a": "<é&'>"}}) == '{"a": "<é&\'>"}'
    assert render("{{ x | tojson(indent=1) }}", {"x": [1]}) == "[\n 1\n]"


def test_blocks_leave_no_lines_behind() -> None:
    assert render("{% for i in x %}\n  {% if i == 2 %}\n  {% break %}\n  {% endif %}\n{{ i }}\n{% endfor %}\n", {"x": [1, 2, 3]}) == "1\n"


def test_what_templates_expect() -> None:
    assert render("{% generation %}a{{ b }}{% endgeneration %}", {"b": 1}) == "a1"
    assert len(render("{{ strftime_now('%Y') }}", {})) == 4
    assert render("{{ missing }}|{{ bos_token }}", {"bos_token": "<s>"}) == "|<s>"


BROKEN: list[tuple[str, str]] = [
    ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ("{% for %}", "template"),
    ("{{ x.y.z }}", "template"),
    ("{{ 1 / 0 }}", "zero"),
    ("{{ 'a' + 1 }}", "template"),
    ("{{ [].append(1) }}", "template"),
    ("{{ ''.__class__.__mro__ }}", "template"),
    ("{{ messages[5]['role'] }}", "template"),
]


@pytest.mark.parametrize(("template", "says"), BROKEN)
def test_every_failure_is_the_requests(template: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        render(template, {"messages": []})


@pytest.mark.parametrize("content", ["The capital", "trailing space ", "", "twice twice"])
def test_an_open_end(content: str) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}"
    messages: list[dict[str, Any]] = [{"role": "user", "content": "twice"}, {"role": "assistant", "content": content}]
    assert render_open_ended(template, messages, {}) == f"[user]twice<end>[assistant]{content}"


def test_an_open_end_that_the_template_leaves_out() -> None:
    with pytest.raises(BadRequest) as refused:
        render_open_ended("{{ messages[0].content }}", [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], {})
    assert refused.value.param == "continue_final_message"
