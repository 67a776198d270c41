"""The defaults form: three states there and back, and beside each field what it inherits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from inference.resolve import Layer
from tenants import services
from tenants.defaults import COLUMNS, FLAG_COLUMNS, NAMES
from tenants.models import Defaults, Policy
from tests.tenants.conftest import Side

NO_POLICIES = {"policies-TOTAL_FORMS": "0", "policies-INITIAL_FORMS": "0"}
STATES = {"": None, "yes": True, "no": False}


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:tenants_defaults_{name}", args=args)


def sent_back(client: Client, row: Defaults, **changes: str) -> Any:
    """Post the form as a browser would: every field as it was rendered, but for the changes."""
    form = client.get(page("change", row.pk)).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    data = {name: "" if value is None else value for name, value in shown.items()}
    return client.post(page("change", row.pk), {**NO_POLICIES, **data, **changes})


def errors(response: Any) -> dict[str, Any]:
    return dict(response.context["adminform"].form.errors) if response.context else {}


def layers_of_a_model(model: str) -> Sequence[Layer]:
    """Stands in for the platform, which knows the models."""
    return [Layer("model", {"temperature": 0.6} if model == "m" else {}), Layer("server", {"return_tokens_as_token_ids": True})]


# Three states


def test_every_flag_in_every_state_there_and_back(acme: Side) -> None:
    client, row = acme.client(), acme.defaults
    for offset in range(3):
        states = dict(zip(FLAG_COLUMNS, itertools.islice(itertools.cycle(STATES), offset, None), strict=False))
        sent_back(client, row, **states)
        row.refresh_from_db()
        assert {column: getattr(row, column) for column in FLAG_COLUMNS} == {column: STATES[state] for column, state in states.items()}
        form = client.get(page("change", row.pk)).context["adminform"].form
        assert {column: form[column].value() for column in FLAG_COLUMNS} == states


def test_a_form_that_is_sent_back_as_it_came_changes_nothing(acme: Side) -> None:
    row = acme.defaults
    for column in FLAG_COLUMNS:
        setattr(row, column, False)
    row.temperature, row.min_p, row.top_k, row.seed = 0.0, 0.0, 0, 0
    row.stop, row.chat_template_kwargs = [], {}
    row.save()
    before = row.values()
    assert len(before) == len(FLAG_COLUMNS) + 6
    assert sent_back(acme.client(), row).status_code == 302
    row.refresh_from_db()
    assert row.values() == before
    assert list(map(type, row.values().values())) == list(map(type, before.values()))


@pytest.mark.parametrize("value", ["maybe", "true", "0", "None", "unknown"])
def test_a_flag_takes_no_fourth_state(acme: Side, value: str) -> None:
    assert "include_reasoning" in errors(sent_back(acme.client(), acme.defaults, include_reasoning=value))


@pytest.mark.parametrize(
    ("column", "text", "stored"),
    [
        ("temperature", "0", 0.0),
        ("temperature", "", None),
        ("top_k", "-1", -1),
        ("max_tokens", "64", 64),
        ("seed", "0", 0),
        ("stop", "[]", []),
        ("stop", '["\\n\\n", "END"]', ["\n\n", "END"]),
        ("stop", "", None),
        ("stop", "null", None),
        ("chat_template_kwargs", "{}", {}),
        ("chat_template_kwargs", '{"a": {"b": false}}', {"a": {"b": False}}),
        ("chat_template_kwargs", "", None),
    ],
)
def test_values_there_and_back(acme: Side, column: str, text: str, stored: Any) -> None:
    sent_back(acme.client(), acme.defaults, **{column: text})
    acme.defaults.refresh_from_db()
    assert getattr(acme.defaults, column) == stored
    assert type(getattr(acme.defaults, column)) is type(stored)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("temperature", "2.5"),
        ("temperature", "hot"),
        ("temperature", "nan"),
        ("top_p", "0"),
        ("top_k", "-2"),
        ("max_tokens", "0"),
        ("max_tokens", "1.5"),
        ("repetition_penalty", "0"),
        ("seed", "-1"),
        ("stop", '"END"'),
        ("stop", '[""]'),
        ("stop", "END"),
        ("chat_template_kwargs", "[]"),
        ("chat_template_kwargs", '{"a.b": 1}'),
        ("chat_template_kwargs", "{"),
    ],
)
def test_a_bad_value_is_an_error_at_its_field(acme: Side, column: str, text: str) -> None:
    before = acme.defaults.values()
    assert list(errors(sent_back(acme.client(), acme.defaults, **{column: text}))) == [column]
    acme.defaults.refresh_from_db()
    assert acme.defaults.values() == before


# What is inherited


def helps(client: Client, row: Defaults) -> dict[str, str]:
    form = client.get(page("change", row.pk)).context["adminform"].form
    return {NAMES[name]: str(field.help_text) for name, field in form.fields.items() if name in NAMES}


def test_a_tenants_defaults_inherit_what_is_built_in(acme: Side) -> None:
    shown = helps(acme.client(), acme.defaults)
    assert shown.keys() == COLUMNS.keys()
    assert shown["include_reasoning"] == "inherits: yes (built in)"
    assert shown["stream_options.include_usage"] == "inherits: no (built in)"
    assert shown["temperature"] == "inherits: 1.0 (built in)", "not its own 0.5"
    assert shown["max_tokens"] == "inherits: what is left of the context (built in)"
    assert shown["chat_template_kwargs"] == "inherits: nothing"


def test_layers_above_are_named(acme: Side, globex: Side, settings: Any) -> None:
    settings.MODEL_LAYERS = "tests.tenants.test_admin_defaults.layers_of_a_model"
    tenant = acme.tenant
    services.set_defaults(tenant=tenant, values={"min_p": 0.1, "chat_template_kwargs": {"a": {"b": "<x>"}}})
    services.set_defaults(tenant=globex.tenant, values={"min_p": 0.9})
    of_model = services.set_defaults(tenant=tenant, model="m", values={"top_k": 5})
    of_key = services.set_defaults(tenant=tenant, key=acme.key, values={})
    shown = helps(acme.client(), of_model)
    assert shown["min_p"] == "inherits: 0.1 (the tenant)"
    assert shown["temperature"] == "inherits: 0.5 (the tenant)"
    assert shown["top_k"] == "inherits: 0 (built in)"
    assert shown["return_tokens_as_token_ids"] == "inherits: yes (the server)"
    assert shown["chat_template_kwargs"] == "inherits: a.b = &quot;&lt;x&gt;&quot; (the tenant)"
    assert helps(acme.client(), of_key)["min_p"] == "inherits: 0.1 (the tenant)"
    services.set_defaults(tenant=tenant, values={"temperature": None})
    assert helps(acme.client(), of_model)["temperature"] == "inherits: 0.6 (the model)"


def test_what_is_enforced_above_is_called_fixed(acme: Side) -> None:
    services.set_policy(defaults=acme.defaults, field="temperature", kind="enforced")
    row = services.set_defaults(tenant=acme.tenant, model="m", values={})
    assert helps(acme.client(), row)["temperature"] == "fixed to 0.5 by the tenant: a value here has no effect"


def test_who_only_looks_sees_it_too(acme: Side) -> None:
    services.set_defaults(tenant=acme.tenant, values={"include_reasoning": False, "stop": []})
    content = acme.client("viewer").get(page("change", acme.defaults.pk)).content.decode()
    texts = {text.strip() for text in re.findall(r">([^<]+)<", content)}
    assert {"no", "0.5", "[]", "inherit", "inherits: yes (built in)", "Stream_options.include_usage"} <= texts


# In two steps


def test_first_for_whom_then_the_values(acme: Side) -> None:
    client = acme.client()
    assert list(client.get(page("add")).context["adminform"].form.fields) == ["tenant", "model", "key"]
    response = client.post(page("add"), {"tenant": acme.tenant.pk, "model": "m"})
    row = Defaults.objects.get(tenant=acme.tenant, model="m")
    assert response["Location"] == page("change", row.pk)
    assert row.values() == {}


@pytest.mark.parametrize("twice", ["", "m"])
def test_a_layer_is_there_once(acme: Side, twice: str) -> None:
    for _ in range(2):
        response = acme.client().post(page("add"), {"tenant": acme.tenant.pk, "model": twice})
    assert errors(response)
    assert Defaults.objects.filter(tenant=acme.tenant, model=twice).count() == 1


def test_defaults_are_a_keys_or_a_models(acme: Side) -> None:
    assert errors(acme.client().post(page("add"), {"tenant": acme.tenant.pk, "model": "m", "key": acme.key.pk}))


def test_whose_they_are_does_not_change(acme: Side) -> None:
    sent_back(acme.client(), acme.defaults, model="other", key=str(acme.key.pk))
    acme.defaults.refresh_from_db()
    assert (acme.defaults.model, acme.defaults.key) == ("", None)


# Policies


def policies(*rows: dict[str, str], kept: Sequence[Policy] = ()) -> dict[str, str]:
    forms = [{"id": str(policy.pk), "field": policy.field, "kind": policy.kind} for policy in kept] + list(rows)
    data = {f"policies-{i}-{name}": value for i, form in enumerate(forms) for name, value in form.items()}
    return {"policies-TOTAL_FORMS": str(len(forms)), "policies-INITIAL_FORMS": str(len(kept)), **data}


def policy_errors(response: Any) -> Any:
    return [form.errors for form in response.context["inline_admin_formsets"][0].formset]


def test_policies_are_set_beside_the_values(acme: Side) -> None:
    rows = (
        {"field": "max_tokens", "kind": "range", "high": "64", "reject": "on"},
        {"field": "temperature", "kind": "enforced"},
        {"field": "chat_template_kwargs.a.b", "kind": "forbidden"},
    )
    assert sent_back(acme.client(), acme.defaults, **policies(*rows)).status_code == 302
    rules = acme.defaults.layer().policies
    assert rules.keys() == {"max_tokens", "temperature", "chat_template_kwargs.a.b"}
    assert (rules["max_tokens"].high, rules["max_tokens"].reject, rules["chat_template_kwargs.a.b"].reject) == (64, True, True)


def test_a_policy_is_checked_against_the_values_as_they_will_be(acme: Side) -> None:
    client = acme.client()
    enforced = policies({"field": "top_p", "kind": "enforced"})
    nothing_there = [{"field": ["top_p has no value here that could be enforced."]}]
    assert policy_errors(sent_back(client, acme.defaults, **enforced)) == nothing_there
    assert sent_back(client, acme.defaults, top_p="0.5", **enforced).status_code == 302
    kept = policies(kept=list(acme.defaults.policies.all()))
    assert policy_errors(sent_back(client, acme.defaults, top_p="", **kept)) == nothing_there


@pytest.mark.parametrize(
    "row",
    [
        {"field": "nonsense", "kind": "forbidden"},
        {"field": "temperature", "kind": "range", "low": "1"},
        {"field": "max_tokens", "kind": "range"},
        {"field": "max_tokens", "kind": "range", "low": "9", "high": "3"},
        {"field": "max_tokens", "kind": "range", "low": "0"},
        {"field": "temperature", "kind": "enforced", "high": "1"},
        {"field": "chat_template_kwargs.x", "kind": "enforced"},
        {"field": "n", "kind": "enforced"},
        {"field": "chat_template_kwargs.", "kind": "forbidden"},
        {"field": "temperature", "kind": "wished"},
        {"field": "", "kind": "forbidden"},
    ],
)
def test_a_policy_that_means_nothing_is_refused(acme: Side, row: dict[str, str]) -> None:
    assert any(policy_errors(sent_back(acme.client(), acme.defaults, **policies(row))))
    assert not Policy.objects.exists()


def test_a_field_has_one_policy(acme: Side) -> None:
    rows = ({"field": "n", "kind": "forbidden"}, {"field": "n", "kind": "range", "high": "2"})
    assert sent_back(acme.client(), acme.defaults, **policies(*rows)).status_code == 200
    assert not Policy.objects.exists()


def test_who_only_looks_sets_no_policy(acme: Side) -> None:
    response = acme.client("developer").post(page("change", acme.defaults.pk), policies({"field": "n", "kind": "forbidden"}))
    assert response.status_code == 403
    assert not Policy.objects.exists()
