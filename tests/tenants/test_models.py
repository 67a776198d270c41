"""A wrong value gets in through no door: each model checks itself on save."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from tenants import services
from tenants.defaults import COLUMNS
from tenants.models import Defaults, Key, Member, Policy, Tenant
from tests.tenants.conftest import Side
from tests.tenants.test_defaults import BAD, GOOD


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_a_good_default_is_stored_as_it_is(acme: Side, name: str, value: Any) -> None:
    row = Defaults(tenant=acme.tenant, model="m", **{COLUMNS[name]: value})
    row.save()
    row.refresh_from_db()
    assert row.values() == {name: value}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, value in BAD if value is not None])
def test_a_bad_default_is_not_stored(acme: Side, name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Defaults(tenant=acme.tenant, model="m", **{COLUMNS[name]: value}).save()
    assert COLUMNS[name] in refused.value.message_dict


@pytest.mark.parametrize("fields", [{"weight": 0}, {"weight": -1}, {"weight": float("nan")}, {"weight": float("inf")}])
def test_a_weight_is_above_nothing(acme: Side, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="weight"):
        Tenant(name="T", slug="t", **fields).save()


@pytest.mark.parametrize("models", ["m", [1], [""], {"m": 1}, 0])
def test_an_allow_list_is_a_list_of_names(acme: Side, models: Any) -> None:
    for row in (acme.tenant, acme.key):
        row.allowed_models = models
        with pytest.raises(ValidationError, match="model names"):
            row.save()


@pytest.mark.parametrize("scopes", [[], ["root"], "inference", None, [1]])
def test_a_key_has_scopes_that_exist(acme: Side, scopes: Any) -> None:
    acme.key.scopes = scopes
    with pytest.raises(ValidationError, match="scopes"):
        acme.key.save()


@pytest.mark.parametrize("name", ["Acme", "ACME", " acme "])
def test_a_tenants_name_is_its_own(acme: Side, name: str) -> None:
    with pytest.raises(ValidationError, match="There is a tenant of this name already"):
        services.create_tenant(name=name)


@pytest.mark.parametrize("name", ["", "   ", "???", "x" * 101])
def test_a_tenant_needs_a_name(db: None, name: str) -> None:
    with pytest.raises(ValidationError):
        services.create_tenant(name=name)


def test_a_name_in_any_script_will_do(db: None) -> None:
    assert services.create_tenant(name="Пример 東京").slug


def test_nothing_reaches_across_tenants(acme: Side, globex: Side) -> None:
    with pytest.raises(ValidationError, match="Not a key of this tenant"):
        services.set_defaults(tenant=acme.tenant, key=globex.key, values={})
    with pytest.raises(ValidationError, match="member of its tenant"):
        services.create_key(tenant=acme.tenant, name="x", created_by=globex.people["owner"])


def test_a_layer_is_there_once(acme: Side) -> None:
    for layer in ({}, {"model": "m"}, {"key": acme.key}):
        services.set_defaults(tenant=acme.tenant, values={}, **layer)  # type: ignore[arg-type]
        with pytest.raises(ValidationError):
            Defaults(tenant=acme.tenant, **layer).save()
        with pytest.raises(IntegrityError), transaction.atomic():
            Defaults.objects.bulk_create([Defaults(tenant=acme.tenant, **layer)])
    with pytest.raises(IntegrityError), transaction.atomic():
        Defaults.objects.filter(key=acme.key).update(model="m")


def test_a_member_is_there_once(acme: Side) -> None:
    with pytest.raises(ValidationError):
        services.place(member=Member(tenant=acme.tenant, user=acme.people["viewer"].user))


def test_a_policy_needs_sense(acme: Side) -> None:
    for field, kind, low in (("top_p", "enforced", None), ("n", "range", None), ("temperature", "range", 1), ("x", "forbidden", None)):
        with pytest.raises(ValidationError):
            services.set_policy(defaults=acme.defaults, field=field, kind=kind, low=low)
    assert not Policy.objects.exists()


def test_a_key_says_no_secret_in_any_of_its_faces(acme: Side) -> None:
    secret = acme.key_text.rpartition("_")[2]
    assert not any(secret in face for face in (str(acme.key), repr(acme.key), str(vars(acme.key))))
    assert Key._meta.get_field("digest").editable is False
