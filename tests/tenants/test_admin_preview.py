"""The defaults page's preview: what is in effect, what saving would change, what a request becomes; and changes taken back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tenants import services
from tenants.models import AuditEntry, Defaults, Policy, Role
from tests.tenants.conftest import Side
from tests.tenants.test_admin_defaults import NO_POLICIES, layers_of_a_model, sent_back


@pytest.fixture(autouse=True)
def platform(settings: Any) -> None:
    settings.MODEL_LAYERS = f"{layers_of_a_model.__module__}.layers_of_a_model"


def page(name: str, row: Defaults) -> str:
    return reverse(f"admin:tenants_defaults_{name}", args=(row.pk,))


def previewed(client: Client, row: Defaults, request: Any = None, **changes: str) -> Any:
    """The answer to the form as it was rendered, but for the changes."""
    form = client.get(page("change", row)).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    data = {name: "" if value is None else value for name, value in shown.items()}
    asked = "" if request is None else json.dumps(request)
    return client.post(page("preview", row), {**NO_POLICIES, **data, "preview-request": asked, **changes}).json()


def policy(field: str, kind: str, **more: str) -> dict[str, str]:
    row = {"field": field, "kind": kind, "low": "", "high": "", "id": "", **more}
    return {"policies-TOTAL_FORMS": "1", "policies-INITIAL_FORMS": "0", **{f"policies-0-{name}": value for name, value in row.items()}}


def becomes(answer: Any) -> dict[str, tuple[str, str]]:
    return {item["field"]: (item["asked"], item["becomes"]) for item in answer["request"]["outcomes"]}


def reasons(answer: Any) -> dict[str, str]:
    return {item["field"]: item["why"] for item in answer["request"]["outcomes"]}


def test_what_is_in_effect_follows_the_form(acme: Side) -> None:
    row, client = acme.defaults, acme.client()
    assert previewed(client, row)["fields"]["temperature"] == "in effect: 0.5 (set here)"
    assert previewed(client, row, temperature="")["fields"]["temperature"] == "in effect: 1.0 (built in)"
    edited = previewed(client, row, return_tokens_as_token_ids="no", chat_template_kwargs='{"a": {"b": 1}}')["fields"]
    assert edited["return_tokens_as_token_ids"] == "in effect: no (set here)"
    assert edited["chat_template_kwargs"] == "in effect: a.b = 1 (set here)"
    row.refresh_from_db()
    assert row.values() == {"temperature": 0.5}


def test_a_preview_saves_nothing_and_says_what_saving_would_change(acme: Side) -> None:
    answer = previewed(acme.client(), acme.defaults, temperature="0.2", include_reasoning="no", **policy("temperature", "enforced"))
    assert answer["differences"] == [
        {"field": "include_reasoning", "before": "inherits", "after": "no"},
        {"field": "policy on temperature", "before": "none", "after": "enforced; a request that disagrees is overruled"},
        {"field": "temperature", "before": "0.5", "after": "0.2"},
    ]
    acme.defaults.refresh_from_db()
    assert acme.defaults.temperature == 0.5
    assert not Policy.objects.exists()


def test_what_becomes_of_a_request_and_why(acme: Side) -> None:
    asked = {"model": "m", "top_p": 0.9, "max_tokens": 500, "temperature": None, "chat_template_kwargs": {"thinking": False}}
    answer = previewed(acme.client(), acme.defaults, asked, **policy("max_tokens", "range", high="100"))
    assert becomes(answer) == {
        "top_p": ("0.9", "0.9"), "max_tokens": ("500", "100"), "chat_template_kwargs.thinking": ("no", "no"),
        "temperature": ("not set", "0.5"), "return_tokens_as_token_ids": ("not set", "yes"),
    }
    assert reasons(answer) == {
        "top_p": "the request says so",
        "max_tokens": "the tenant holds it within its range",
        "chat_template_kwargs.thinking": "the request says so",
        "temperature": "the request says nothing; the tenant does",
        "return_tokens_as_token_ids": "the request says nothing; the server does",
    }


def test_what_is_fixed_overrules(acme: Side) -> None:
    answer = previewed(acme.client(), acme.defaults, {"temperature": 1.5}, **policy("temperature", "enforced"))
    (outcome,) = [item for item in answer["request"]["outcomes"] if item["field"] == "temperature"]
    assert (outcome["becomes"], outcome["overruled"]) == ("0.5", True)
    assert outcome["why"] == "the tenant fixes it, whatever the request says"


@pytest.mark.parametrize(
    ("asked", "rules", "words"),
    [
        ({"temperature": 1.5}, policy("temperature", "enforced", reject="on"), "temperature is set to 0.5 for this tenant"),
        ({"seed": 1}, policy("seed", "forbidden"), "seed may not be set"),
        ({"temperature": "warm"}, {}, "temperature"),
        ([], {}, "object"),
    ],
)
def test_a_refusal_is_told_in_its_own_words(acme: Side, asked: Any, rules: dict[str, str], words: str) -> None:
    assert words in previewed(acme.client(), acme.defaults, asked, **rules)["request"]["refused"]


def test_what_is_wrong_with_the_form_is_told_and_the_rest_counts(acme: Side) -> None:
    answer = previewed(acme.client(), acme.defaults, temperature="9", top_p="0.7")
    assert list(answer["faults"]) == ["temperature"]
    assert answer["fields"]["top_p"] == "in effect: 0.7 (set here)"


def test_a_keys_row_stands_on_its_tenants(acme: Side) -> None:
    row = services.set_defaults(tenant=acme.tenant, key=acme.key, values={"top_p": 0.8})
    services.set_defaults(tenant=acme.tenant, model="m", values={"min_p": 0.1})
    answer = previewed(acme.client(), row, {"model": "m"})
    assert reasons(answer) == {
        "top_p": "the request says nothing; the key does",
        "min_p": "the request says nothing; the tenant, for this model does",
        "temperature": "the request says nothing; the tenant does",
        "return_tokens_as_token_ids": "the request says nothing; the server does",
    }


def test_a_viewer_may_ask_but_not_edit(acme: Side) -> None:
    client = acme.client(Role.VIEWER)
    answer = client.post(page("preview", acme.defaults), {"temperature": "0.1", "preview-request": "{}"}).json()
    assert answer["differences"] == []
    assert answer["fields"]["temperature"] == "in effect: 0.5 (set here)"


@pytest.mark.parametrize("name", ["preview", "revert", "history"])
def test_another_tenants_defaults_do_not_exist(acme: Side, globex: Side, name: str) -> None:
    assert acme.client().post(page(name, globex.defaults)).status_code == 404


# Taking back


def changed(acme: Side) -> list[AuditEntry]:
    sent_back(acme.client(), acme.defaults, temperature="0.1", **policy("temperature", "enforced"))
    sent_back(acme.client(), acme.defaults, temperature="0.9", top_p="0.5", **{
        **policy("temperature", "enforced"), "policies-INITIAL_FORMS": "1", "policies-0-id": str(Policy.objects.get().pk),
        "policies-0-DELETE": "on"})
    return list(AuditEntry.objects.filter(object_type__in=["defaults", "policy"]).order_by("id"))


def take_back(client: Client, row: Defaults, entry: AuditEntry) -> Any:
    return client.post(page("revert", row), {"entry": entry.pk})


def test_a_change_is_taken_back_with_its_policies(acme: Side) -> None:
    entries = changed(acme)
    second = [entry for entry in entries if entry.object_type == "defaults"][-1]
    assert take_back(acme.client(), acme.defaults, second).status_code == 302
    row = Defaults.objects.get(pk=acme.defaults.pk)
    assert row.values() == {"temperature": 0.1}
    assert [(policy.field, policy.kind) for policy in row.policies.all()] == [("temperature", "enforced")]


def test_taking_back_is_a_change_that_can_be_taken_back(acme: Side) -> None:
    first = changed(acme)[1]
    take_back(acme.client(), acme.defaults, first)
    assert Defaults.objects.get(pk=acme.defaults.pk).values() == {"temperature": 0.5}
    newest = AuditEntry.objects.filter(object_type="defaults").first()
    assert newest is not None
    take_back(acme.client(), acme.defaults, newest)
    assert Defaults.objects.get(pk=acme.defaults.pk).values() == {"temperature": 0.9, "top_p": 0.5}


def test_the_page_of_changes_shows_them(acme: Side) -> None:
    changed(acme)
    text = acme.client().get(page("history", acme.defaults)).content.decode()
    assert "top_p" in text
    assert "owner@acme.test" in text
    assert "Set all back to before this" in text
    assert "Set all back" not in acme.client(Role.VIEWER).get(page("history", acme.defaults)).content.decode()


def test_who_may_not_edit_takes_nothing_back(acme: Side) -> None:
    entry = changed(acme)[1]
    assert take_back(acme.client(Role.VIEWER), acme.defaults, entry).status_code == 403
    assert Defaults.objects.get(pk=acme.defaults.pk).values() == {"temperature": 0.9, "top_p": 0.5}


def test_nobody_takes_back_anothers_change(acme: Side, globex: Side) -> None:
    theirs = AuditEntry.objects.filter(tenant=globex.tenant, object_type="defaults").first()
    assert theirs is not None
    assert take_back(acme.client(), acme.defaults, theirs).status_code == 404
