"""Every write of the admin is in the audit log: by whom, from where, what before and after, and no secret."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from inference.resolve import resolve
from tenants import services
from tenants.admin import site
from tenants.admin.audited import AuditedAdmin
from tenants.history import audit_entries, layers_at
from tenants.models import AuditEntry, Defaults, Key, Member, Role
from tests.tenants.conftest import PASSWORD, Side
from tests.tenants.test_admin_defaults import sent_back

ADDED = {"tenant": {"name": "New", "slug": "new", "weight": "2", "allowed_models_choose": "every"},
         "member": {"role": "viewer", "username": "new@acme.test", "password": PASSWORD},
         "key": {"name": "new", "scopes": ["inference"], "allowed_models_choose": "every"},
         "defaults": {"model": "m"}}  # fmt: skip


def page(noun: str, name: str = "changelist", *args: Any, app: str = "tenants") -> str:
    return reverse(f"admin:{app}_{noun}_{name}", args=args)


def newest(noun: str) -> AuditEntry:
    entry = AuditEntry.objects.filter(object_type=noun).first()
    assert entry is not None
    return entry


def told(entry: AuditEntry) -> tuple[str, str, str]:
    return entry.action, entry.actor_name, entry.source


def test_whoever_can_write_is_audited(root: Client, rf: Any) -> None:
    request = rf.get("/")
    request.user = root.get(reverse("admin:index")).wsgi_request.user
    for model, admin in site._registry.items():
        writes = (admin.has_add_permission(request), admin.has_change_permission(request), admin.has_delete_permission(request))
        assert isinstance(admin, AuditedAdmin) or not any(writes), model


@pytest.mark.parametrize("noun", ADDED)
def test_what_is_added(root: Client, acme: Side, noun: str) -> None:
    response = root.post(page(noun, "add"), {**ADDED[noun], **({} if noun == "tenant" else {"tenant": acme.tenant.pk})})
    assert response.status_code in (200, 302)
    entry = newest(noun)
    assert told(entry) == ("created", "root", "admin 127.0.0.1")
    assert entry.before == {}
    assert entry.actor.startswith("user:")
    assert PASSWORD not in str(list(AuditEntry.objects.values()))


def test_a_change_and_a_deletion(acme: Side) -> None:
    colleague = acme.people[Role.DEVELOPER]
    Key.objects.update(created_by=None)
    acme.client().post(page("member", "change", colleague.pk), {"role": "viewer", "active": "on"})
    changed = newest("member")
    assert told(changed) == ("changed", "owner@acme.test", "admin 127.0.0.1")
    assert (changed.before, changed.after) == ({"role": "developer"}, {"role": "viewer"})
    acme.client().post(page("member", "delete", colleague.pk), {"post": "yes"})
    deleted = newest("member")
    assert (deleted.action, deleted.object_id, deleted.before["role"]) == ("deleted", str(colleague.pk), "viewer")


def test_a_deletion_of_many(acme: Side) -> None:
    chosen = [acme.people[role].pk for role in (Role.VIEWER, Role.ADMIN)]
    acme.client().post(page("member"), {"action": "delete_selected", "_selected_action": chosen, "post": "yes"})
    assert not Member.objects.filter(pk__in=chosen).exists()
    gone = AuditEntry.objects.filter(object_type="member", action="deleted").values_list("object_id", flat=True)
    assert set(gone) == set(map(str, chosen))


def test_what_goes_with_a_deleted_row_is_told_too(acme: Side) -> None:
    policy = services.set_policy(defaults=acme.defaults, field="temperature", kind="forbidden")
    acme.client().post(page("defaults", "delete", acme.defaults.pk), {"post": "yes"})
    assert not Defaults.objects.exists()
    gone = AuditEntry.objects.filter(action="deleted")
    assert {(entry.object_type, entry.object_id) for entry in gone} == {("defaults", str(acme.defaults.pk)), ("policy", str(policy.pk))}
    assert newest("policy").tenant_id == acme.tenant.pk


@pytest.mark.parametrize("door", ["one", "selected"])
def test_a_revocation(acme: Side, door: str) -> None:
    if door == "one":
        acme.client().post(page("key", "revoke", acme.key.pk), {"_form_submitted": "on"})
    else:
        acme.client().post(page("key"), {"action": "revoke_selected", "_selected_action": [acme.key.pk]})
    entry = newest("key")
    assert told(entry) == ("changed", "owner@acme.test", "admin 127.0.0.1")
    assert list(entry.after) == ["revoked_at"]


def test_a_password_is_a_fingerprint(root: Client, acme: Side) -> None:
    user = acme.people[Role.VIEWER].user
    before = user.password
    root.post(reverse("admin:auth_user_password_change", args=(user.pk,)), {"password1": "another phrase", "password2": "another phrase"})
    user.refresh_from_db()
    assert user.password != before
    entry = newest("user")
    assert told(entry) == ("changed", "root", "admin 127.0.0.1")
    assert entry.after["password"].startswith("•••")
    assert len(entry.after["password"]) == len("•••") + 6


def test_defaults_and_their_policies_have_a_history(acme: Side) -> None:
    """Through the form: a value, a policy, and both taken back; then what applied after each."""
    times = []

    def send(**changes: str) -> None:
        assert sent_back(acme.client(), acme.defaults, **changes).status_code == 302
        times.append(timezone.now())

    new = {"policies-TOTAL_FORMS": "1", "policies-0-field": "temperature", "policies-0-kind": "enforced"}
    send(temperature="0.9")
    send(**new)
    policy = acme.defaults.policies.get()
    kept = {**new, "policies-INITIAL_FORMS": "1", "policies-0-id": str(policy.pk), "policies-0-defaults": str(acme.defaults.pk)}
    send(**kept, **{"policies-0-DELETE": "on"}, temperature="0.1")
    assert not acme.defaults.policies.exists()
    applied = [layers_at(tenant_id=acme.tenant.pk, when=when, model="m") for when in times]
    assert [resolve({}, layers)["temperature"] for layers in applied] == [0.9, 0.9, 0.1]
    assert [list(layers[0].policies) for layers in applied] == [[], ["temperature"], []]
    assert [told(entry)[:2] for entry in audit_entries(tenant_id=acme.tenant.pk, object_type="policy")] == [
        ("deleted", "owner@acme.test"), ("created", "owner@acme.test")]  # fmt: skip


def test_what_changes_nothing_leaves_no_trace(acme: Side) -> None:
    before = AuditEntry.objects.count()
    assert sent_back(acme.client(), acme.defaults).status_code == 302
    assert acme.client(Role.VIEWER).post(page("defaults", "delete", acme.defaults.pk), {"post": "yes"}).status_code == 403
    assert (AuditEntry.objects.count(), Defaults.objects.count()) == (before, 1)
