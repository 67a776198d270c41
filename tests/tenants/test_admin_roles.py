"""What each role may do within its own tenant: one table, and every page obeys it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.auth import get_user_model
from django.urls import reverse

from tenants.models import Defaults, Key, Member, Role
from tests.tenants.conftest import PASSWORD, Side

MAY = {  # noun: {what: roles}
    "tenant": {"add": "", "change": "", "delete": ""},
    "member": {"add": "owner admin", "change": "owner admin", "delete": "owner admin"},
    "key": {"add": "owner admin developer", "change": "owner admin", "delete": ""},
    "defaults": {"add": "owner admin", "change": "owner admin", "delete": "owner admin"},
}
CASES = [(noun, what, role, role in roles.split()) for noun, rules in MAY.items() for what, roles in rules.items() for role in Role.values]
ADD: dict[str, dict[str, Any]] = {
    "member": {"role": "viewer", "username": "new@acme.test", "password": PASSWORD},
    "key": {"name": "new", "scopes": ["inference"], "allowed_models_choose": "every"},
    "defaults": {"model": "m"},
    "tenant": {"name": "New", "slug": "new", "weight": "1", "allowed_models_choose": "every"},
}


def page(noun: str, name: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:tenants_{noun}_{name}", args=args)


def target(side: Side, noun: str) -> Any:
    return {"tenant": side.tenant, "member": side.people[Role.VIEWER], "key": side.key, "defaults": side.defaults}[noun]


@pytest.mark.parametrize(("noun", "what", "role", "may"), CASES)
def test_the_table_holds(acme: Side, noun: str, what: str, role: str, may: bool) -> None:
    url = page(noun, what, *([] if what == "add" else [target(acme, noun).pk]))
    data = {"add": {**ADD[noun], "tenant": acme.tenant.pk}, "delete": {"post": "yes"}, "change": {}}[what]
    response = acme.client(role).post(url, data)
    assert (response.status_code != 403) == may
    if what == "delete":
        assert type(target(acme, noun)).objects.filter(pk=target(acme, noun).pk).exists() != may


@pytest.mark.parametrize("role", Role.values)
@pytest.mark.parametrize("noun", MAY)
def test_every_role_looks_at_its_tenant(acme: Side, role: str, noun: str) -> None:
    client = acme.client(role)
    assert client.get(page(noun)).status_code == 200
    assert client.get(page(noun, "change", target(acme, noun).pk)).status_code == 200
    assert client.get(page(noun, "history", target(acme, noun).pk)).status_code == 200


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.VIEWER])
def test_who_only_looks_gets_no_form(acme: Side, role: str) -> None:
    for noun in ("member", "key", "defaults"):
        response = acme.client(role).get(page(noun, "change", target(acme, noun).pk))
        form = response.context["adminform"]
        assert set(flatten_fieldsets(form.fieldsets)) <= set(form.readonly_fields)
        assert not any(inline.has_change_permission or inline.has_add_permission for inline in response.context["inline_admin_formsets"])
        assert not response.context["show_save"]


@pytest.mark.parametrize(("role", "may"), [(Role.OWNER, True), (Role.ADMIN, True), (Role.DEVELOPER, False), (Role.VIEWER, False)])
def test_who_revokes(acme: Side, role: str, may: bool) -> None:
    response = acme.client(role).post(page("key", "revoke", acme.key.pk), {"_form_submitted": "on"})
    assert (response.status_code != 403) == may
    acme.key.refresh_from_db()
    assert (acme.key.revoked_at is not None) == may


def test_a_key_is_its_makers(acme: Side) -> None:
    acme.client(Role.DEVELOPER).post(page("key", "add"), {**ADD["key"], "tenant": acme.tenant.pk})
    assert Key.objects.get(name="new").created_by == acme.people[Role.DEVELOPER]


# Members


def test_a_new_member_can_log_in_and_do_what_the_role_says(acme: Side) -> None:
    acme.client().post(page("member", "add"), {**ADD["member"], "tenant": acme.tenant.pk})
    user = Member.objects.get(user__username="new@acme.test").user
    assert user.check_password(PASSWORD)
    assert (user.is_staff, user.is_superuser) == (True, False)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"username": ""}, "username"),
        ({"username": "owner@globex.test"}, "username"),
        ({"username": "two words"}, "username"),
        ({"password": ""}, "password"),
        ({"password": "short"}, "password"),
        ({"email": "nonsense"}, "email"),
        ({"role": "emperor"}, "role"),
    ],
)
def test_a_bad_new_member_is_refused_by_field(acme: Side, globex: Side, data: dict[str, str], field: str) -> None:
    response = acme.client().post(page("member", "add"), {**ADD["member"], "tenant": acme.tenant.pk, **data})
    assert field in response.context["adminform"].form.errors
    assert Member.objects.filter(tenant=acme.tenant).count() == 4
    assert globex.people[Role.OWNER].user.check_password(PASSWORD)


def test_nobody_slips_rights_in(acme: Side, globex: Side) -> None:
    slipped = {"is_superuser": "on", "is_staff": "on", "user": globex.people[Role.OWNER].user.pk, "tenant": acme.tenant.pk}
    acme.client().post(page("member", "add"), {**ADD["member"], **slipped})
    member = Member.objects.get(user__username="new@acme.test")
    assert not member.user.is_superuser
    assert not Member.objects.filter(tenant=acme.tenant, user=globex.people[Role.OWNER].user).exists()
    acme.client().post(page("member", "change", member.pk), {"role": "viewer", **slipped})
    member.refresh_from_db()
    assert (member.user.username, member.user.is_superuser) == ("new@acme.test", False)


def test_users_are_out_of_a_tenants_reach(acme: Side, globex: Side) -> None:
    for side in (acme, globex):
        user = side.people[Role.VIEWER].user
        for name, args in (("changelist", ()), ("add", ()), ("change", (user.pk,)), ("history", (user.pk,))):
            assert acme.client().get(reverse(f"admin:auth_user_{name}", args=args)).status_code in (403, 404)
        assert acme.client().post(reverse("admin:auth_user_password_change", args=(user.pk,)), {}).status_code in (403, 404)


@pytest.mark.parametrize(("role", "may"), [(Role.OWNER, True), (Role.ADMIN, False)])
def test_only_an_owner_makes_or_touches_owners(acme: Side, role: str, may: bool) -> None:
    client, owner = acme.client(role), acme.people[Role.OWNER]
    client.post(page("member", "add"), {**ADD["member"], "role": "owner", "tenant": acme.tenant.pk})
    assert Member.objects.filter(user__username="new@acme.test", role="owner").exists() == may
    client.post(page("member", "change", acme.people[Role.VIEWER].pk), {"role": "owner", "active": "on"})
    acme.people[Role.VIEWER].refresh_from_db()
    assert (acme.people[Role.VIEWER].role == "owner") == may
    assert (client.post(page("member", "delete", owner.pk), {"post": "yes"}).status_code != 403) == may
    assert Member.objects.filter(pk=owner.pk).exists() != may


def test_an_admin_deletes_no_owner_from_the_list_either(acme: Side) -> None:
    chosen = {"action": "delete_selected", "_selected_action": [acme.people[Role.OWNER].pk], "post": "yes"}
    acme.client(Role.ADMIN).post(page("member"), chosen)
    assert Member.objects.filter(pk=acme.people[Role.OWNER].pk).exists()


def test_a_superuser_places_a_user_who_exists(root: Any, acme: Side) -> None:
    user = get_user_model().objects.create_user("guest", "", PASSWORD)
    root.post(page("member", "add"), {"tenant": acme.tenant.pk, "role": "viewer", "user": user.pk})
    user.refresh_from_db()
    assert Member.objects.filter(tenant=acme.tenant, user=user, role="viewer").exists()
    assert user.is_staff
    both = {**ADD["member"], "tenant": acme.tenant.pk, "user": user.pk}
    assert root.post(page("member", "add"), both).context["adminform"].form.errors


def test_who_made_keys_is_switched_off_and_not_deleted(acme: Side) -> None:
    maker = acme.people[Role.DEVELOPER]
    acme.client().post(page("member", "delete", maker.pk), {"post": "yes"})
    assert Member.objects.filter(pk=maker.pk).exists()


def test_what_a_tenant_may_is_not_its_own_to_say(acme: Side) -> None:
    acme.client().post(page("tenant", "change", acme.tenant.pk), {"name": "Acme", "slug": "acme", "weight": "100"})
    acme.tenant.refresh_from_db()
    assert acme.tenant.weight == 1.0


def test_a_superuser_runs_the_tenants(root: Any, acme: Side) -> None:
    form = {"name": "Acme", "slug": "acme", "weight": "2", "active": "on"}
    for chosen, names, stored in (("only", "a, b", ["a", "b"]), ("only", "", []), ("every", "", None)):
        root.post(page("tenant", "change", acme.tenant.pk), {**form, "allowed_models_choose": chosen, "allowed_models_names": names})
        acme.tenant.refresh_from_db()
        assert (acme.tenant.weight, acme.tenant.allowed_models) == (2.0, stored)
    assert Defaults.objects.filter(tenant=acme.tenant).exists()
