from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from inference.errors import BadRequest
from tenants import services
from tenants.callers import authenticate
from tenants.models import Defaults, Key, Member, Policy, Tenant
from tests.tenants.conftest import Side


def test_defaults_are_laid_on_what_is_there(acme: Side) -> None:
    services.set_defaults(tenant=acme.tenant, values={"top_k": 0, "chat_template_kwargs": {"a": {"b": 1, "c": 2}, "x": [1]}})
    row = services.set_defaults(tenant=acme.tenant, values={"seed": 7, "chat_template_kwargs": {"a": {"b": 3}, "x": [2]}})
    assert row.values() == {"temperature": 0.5, "top_k": 0, "seed": 7, "chat_template_kwargs": {"a": {"b": 3, "c": 2}, "x": [2]}}
    assert Defaults.objects.filter(tenant=acme.tenant).count() == 1


@pytest.mark.parametrize("name", ["temperature", "include_reasoning", "stop", "chat_template_kwargs"])
def test_none_inherits_again(acme: Side, name: str) -> None:
    value: Any = {"temperature": 0, "include_reasoning": False, "stop": [], "chat_template_kwargs": {}}[name]
    assert services.set_defaults(tenant=acme.tenant, model="m", values={name: value}).values() == {name: value}
    assert services.set_defaults(tenant=acme.tenant, model="m", values={name: None}).values() == {}


@pytest.mark.parametrize("values", [{"temperature": 9}, {"nonsense": 1}, {"nonsense": None}, {"seed": "7"}, {"include_reasoning": 1}])
def test_nothing_is_set_where_anything_is_wrong(acme: Side, values: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        services.set_defaults(tenant=acme.tenant, values={"top_k": 1, **values})
    assert Defaults.objects.get(tenant=acme.tenant).values() == {"temperature": 0.5}


def test_a_tenant_is_made_whole_or_not_at_all(db: None) -> None:
    with pytest.raises(BadRequest):
        services.create_tenant(name="T", values={"temperature": 9})
    assert not Tenant.objects.exists()


def test_a_policy_replaces_the_one_before(acme: Side) -> None:
    services.set_policy(defaults=acme.defaults, field="max_tokens", kind="range", high=10)
    services.set_policy(defaults=acme.defaults, field="max_tokens", kind="forbidden")
    rule = Policy.objects.get().rule()
    assert (rule.kind, rule.high, rule.reject) == ("forbidden", None, True)


def test_a_second_revocation_keeps_the_time_of_the_first(acme: Side) -> None:
    services.revoke_key(key=acme.key)
    first = Key.objects.get(pk=acme.key.pk).revoked_at
    services.revoke_key(key=Key.objects.get(pk=acme.key.pk))
    assert Key.objects.get(pk=acme.key.pk).revoked_at == first


def test_a_key_goes_on_working_when_the_pepper_changes(acme: Side, settings: Any) -> None:
    settings.KEY_PEPPERS = {**settings.KEY_PEPPERS, 2: b"another"}
    assert authenticate(acme.key_text)
    key, text = services.create_key(tenant=acme.tenant, name="newer")
    assert key.pepper_version == 2
    assert authenticate(text)
    settings.KEY_PEPPERS = {2: b"another"}
    assert authenticate(text)


# The demo


@pytest.fixture
def demo_file(settings: Any) -> Path:
    return Path(settings.TOKENRY_HOME) / "demo.json"


def test_the_demo_is_made_once_and_told_again(db: None, demo_file: Path) -> None:
    demo = services.ensure_demo()
    assert demo.tenant == authenticate(demo.key).tenant == "demo"
    admin = get_user_model().objects.get(username=demo.username)
    assert admin.check_password(str(demo.password))
    assert admin.is_superuser
    assert Member.objects.get(user=admin).role == "owner"
    assert services.ensure_demo() == demo
    assert Key.objects.count() == 1


def test_only_its_owner_can_read_the_file(db: None, demo_file: Path) -> None:
    demo_file.write_text("{}")
    demo_file.chmod(0o644)
    services.ensure_demo()
    assert stat.S_IMODE(demo_file.stat().st_mode) == 0o600


def test_what_is_no_longer_true_is_not_told(db: None, demo_file: Path) -> None:
    first = services.ensure_demo()
    services.revoke_key(key=Key.objects.get())
    assert (services.ensure_demo().key, services.ensure_demo().password) == (None, first.password)
    admin = get_user_model().objects.get(username="admin")
    admin.set_password("changed by its owner")
    admin.save()
    assert services.ensure_demo().password is None


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"key": 1}', json.dumps({"key": "tk_x", "password": None})])
def test_a_lost_or_broken_file_makes_nothing_new(db: None, demo_file: Path, content: str | None) -> None:
    services.ensure_demo()
    demo_file.unlink() if content is None else demo_file.write_text(content)
    demo = services.ensure_demo()
    assert (demo.key, demo.password) == (None, None)
    assert (Tenant.objects.count(), Key.objects.count()) == (1, 1)


def test_an_admin_who_was_there_keeps_the_password(db: None) -> None:
    admin = get_user_model().objects.create_superuser("admin", "", "my own password")
    demo = services.ensure_demo()
    admin.refresh_from_db()
    assert admin.check_password("my own password")
    assert demo.password is None
    assert demo.key is not None
