"""Every corner of the admin, as a tenant's people: another tenant's rows do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tenants import services
from tenants.admin import site
from tenants.admin.scoped import TenantScopedAdmin
from tenants.entry_ids import new_id
from tenants.models import AuditEntry, Defaults, Entry, Key, Limit, Member, Role, Rollup, Tenant
from tests.tenants.conftest import PASSWORD, Side

NOUNS = ("tenant", "member", "key", "defaults", "limit", "entry", "rollup", "auditentry")
ROLES = [Role.OWNER, Role.VIEWER]


def rows(side: Side) -> dict[str, Any]:
    """One of everything that the admin shows."""
    whose = {"tenant": side.tenant, "key": side.key}
    used = {"model": "m", "endpoint": "chat", "request_id": f"of {side.tenant}", "process": "p", "reserved_tokens": 1}
    now = timezone.now()
    return {
        "tenant": side.tenant, "member": side.people[Role.VIEWER], "key": side.key, "defaults": side.defaults,
        "limit": Limit.objects.get_or_create(**whose, defaults={"concurrency": 5})[0],
        "entry": Entry.objects.get_or_create(**whose, defaults={"id": new_id(now), "created": now, **used})[0],
        "rollup": Rollup.objects.get_or_create(**whose, defaults={"model": "m", "day": now.date()})[0],
        "auditentry": AuditEntry.objects.filter(tenant=side.tenant).first(),
    }


@pytest.fixture
def acme(acme: Side) -> Side:
    rows(acme)
    return acme


@pytest.fixture
def globex(globex: Side) -> Side:
    rows(globex)
    return globex


def page(noun: str, name: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:tenants_{noun}_{name}", args=args)


def text_of(response: Any) -> str:
    return str(response.content, "utf-8") if not response.streaming else ""


def traces(side: Side) -> tuple[str, ...]:
    """What would give the tenant away on a page."""
    return (side.tenant.name, side.tenant.slug, side.key.public_id)


@pytest.fixture(params=ROLES)
def alice(request: pytest.FixtureRequest, acme: Side, globex: Side) -> Client:
    """Who may most and who may least in Acme, beside another tenant."""
    return acme.client(request.param)


def looks(client: Client, noun: str) -> bool:
    """What managers did is for managers to see; everything else for everybody."""
    return noun != "auditentry" or Member.objects.filter(user=client.session["_auth_user_id"], role=Role.OWNER).exists()


def test_all_that_is_registered_is_walked_here(db: None) -> None:
    assert {model._meta.model_name for model, admin in site._registry.items() if isinstance(admin, TenantScopedAdmin)} == set(NOUNS)


def test_all_that_is_registered_is_scoped_or_for_superusers_alone(alice: Client) -> None:
    for model, admin in site._registry.items():
        if not isinstance(admin, TenantScopedAdmin):
            listing = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
            assert alice.get(listing).status_code == 403


# Lists


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize("query", ["", "?o=1", "?q=o", "?all=", "?tenant__id__exact={}", "?tenant={}", "?p=1", "?_facets=True"])
def test_lists_show_own_rows_alone(alice: Client, globex: Side, noun: str, query: str) -> None:
    response = alice.get(page(noun) + query.format(globex.tenant.pk))
    if noun == "tenant" and "tenant" in query:
        assert response.status_code in (302, 400)
    else:
        assert response.status_code == (200 if looks(alice, noun) else 403)
    assert not any(trace in text_of(response) for trace in traces(globex))


@pytest.mark.parametrize("noun", NOUNS)
def test_lists_do_show_own_rows(alice: Client, acme: Side, noun: str) -> None:
    shown = text_of(alice.get(page(noun)))
    assert any(trace in shown for trace in (*traces(acme), "Every model")) == looks(alice, noun)


@pytest.mark.parametrize(
    ("noun", "lookup"),
    [
        ("key", "digest__gt"),
        ("key", "last_four__startswith"),
        ("key", "tenant__name__startswith"),
        ("key", "created_by__user__password__startswith"),
        ("member", "user__password__startswith"),
        ("member", "user__is_superuser__exact"),
        ("member", "tenant__slug__startswith"),
        ("defaults", "key__digest__gt"),
        ("defaults", "temperature__gt"),
        ("tenant", "members__user__password__startswith"),
        ("tenant", "keys__digest__gt"),
    ],
)
def test_no_column_can_be_guessed_at_through_a_lookup(acme: Side, noun: str, lookup: str) -> None:
    assert acme.client().get(page(noun), {lookup: "a"}).status_code == 400


def test_the_sidebar_of_a_list_offers_no_other_tenant(acme: Side, globex: Side) -> None:
    """Shown to those who have several tenants: a member of two of three sees two."""
    third = services.create_tenant(name="Initech")
    services.create_key(tenant=third, name="key of Initech")
    services.place(member=Member(tenant=third, user=acme.people[Role.OWNER].user, role=Role.VIEWER))
    response = acme.client().get(page("key"))
    filters = response.context["cl"].filter_specs
    choices = [choice["display"] for spec in filters for choice in spec.choices(response.context["cl"])]
    assert {"Acme", "Initech"} <= set(choices)
    assert "Globex" not in choices


# One row


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize("name", ["change", "delete", "history"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_another_tenants_row_is_not_there(alice: Client, globex: Side, noun: str, name: str, method: str) -> None:
    for pk in (rows(globex)[noun].pk, 10_000):
        for query in ("", "?_popup=1", "?_to_field=id"):
            response = getattr(alice, method)(page(noun, name, pk) + query, {"post": "yes", "name": "taken over"})
            assert response.status_code == 404
    assert Tenant.objects.filter(name="Globex").exists()
    assert Key.objects.filter(name="key of Globex", revoked_at=None).exists()


@pytest.mark.parametrize("method", ["get", "post"])
def test_another_tenants_key_cannot_be_revoked(alice: Client, globex: Side, method: str) -> None:
    for pk in (globex.key.pk, 10_000):
        assert getattr(alice, method)(page("key", "revoke", pk), {"_form_submitted": "on"}).status_code == 404
    globex.key.refresh_from_db()
    assert globex.key.revoked_at is None


@pytest.mark.parametrize(("noun", "action"), [("key", "revoke_selected"), ("member", "delete_selected"), ("defaults", "delete_selected")])
@pytest.mark.parametrize("across", ["0", "1"])
def test_actions_do_not_reach_another_tenants_rows(acme: Side, globex: Side, noun: str, action: str, across: str) -> None:
    chosen = {"action": action, "_selected_action": [rows(globex)[noun].pk], "select_across": across, "post": "yes"}
    response = acme.client().post(page(noun), chosen)
    assert not any(trace in text_of(response) for trace in traces(globex))
    globex.key.refresh_from_db()
    assert globex.key.revoked_at is None
    assert Member.objects.filter(tenant=globex.tenant).count() == 4
    assert Defaults.objects.filter(tenant=globex.tenant).exists()


def test_the_confirmation_of_a_deletion_names_own_rows_alone(acme: Side, globex: Side) -> None:
    response = acme.client().get(page("member", "delete", acme.people[Role.DEVELOPER].pk))
    assert acme.key.public_id in text_of(response), "the key that stands in the way"
    assert not any(trace in text_of(response) for trace in traces(globex))


def test_there_is_no_view_on_site(alice: Client, globex: Side) -> None:
    """Django's tells by its error whether a row of any table exists."""
    kind = ContentType.objects.get_for_model(Key)
    bodies = {alice.get(f"/admin/r/{kind.pk}/{pk}/").content for pk in (globex.key.pk, 10_000)}
    assert len(bodies) == 1
    assert alice.get(f"/admin/r/{kind.pk}/{globex.key.pk}/").status_code == 404


# Choices


def offered(response: Any) -> Iterator[tuple[str, str]]:
    form = response.context["adminform"].form
    for name, field in form.fields.items():
        yield from ((name, str(label)) for _, label in getattr(field, "choices", ()))


@pytest.mark.parametrize("noun", ["member", "key", "defaults"])
def test_a_form_offers_own_rows_alone(acme: Side, globex: Side, noun: str) -> None:
    for url in (page(noun, "add"), page(noun, "add") + f"?tenant={globex.tenant.pk}&_popup=1", page(noun, "change", rows(acme)[noun].pk)):
        response = acme.client().get(url)
        assert not any("Globex" in label or "globex" in label for _, label in offered(response))
        assert not any(trace in text_of(response) for trace in traces(globex))


@pytest.mark.parametrize(
    ("noun", "data"),
    [
        ("member", {"role": "viewer", "username": "mole", "password": PASSWORD}),
        ("key", {"name": "mole", "scopes": ["inference"], "allowed_models_choose": "every"}),
        ("defaults", {"model": "m"}),
    ],
)
def test_nothing_is_made_in_another_tenant(acme: Side, globex: Side, noun: str, data: dict[str, Any]) -> None:
    before = [model.objects.count() for model in (Member, Key, Defaults)]
    response = acme.client().post(page(noun, "add"), {**data, "tenant": globex.tenant.pk})
    assert "tenant" in response.context["adminform"].form.errors
    assert [model.objects.count() for model in (Member, Key, Defaults)] == before


@pytest.mark.parametrize("noun", ["member", "key", "defaults"])
def test_nothing_moves_to_another_tenant(acme: Side, globex: Side, root: Client, noun: str) -> None:
    row = rows(acme)[noun]
    for client in (acme.client(), root):
        form = client.get(page(noun, "change", row.pk)).context["adminform"].form
        assert "tenant" not in form.fields
        client.post(page(noun, "change", row.pk), {"tenant": globex.tenant.pk, "name": "x", "role": "viewer", "scopes": ["inference"]})
        row.refresh_from_db()
        assert row.tenant == acme.tenant


def test_defaults_are_not_made_for_another_tenants_key(acme: Side, globex: Side, root: Client) -> None:
    for client in (acme.client(), root):
        response = client.post(page("defaults", "add"), {"tenant": acme.tenant.pk, "key": globex.key.pk})
        assert "key" in response.context["adminform"].form.errors
    assert not Defaults.objects.filter(key=globex.key).exists()


POINTERS = [("key", "tenant"), ("member", "tenant"), ("member", "user"), ("defaults", "key"), ("defaults", "tenant")]


@pytest.mark.parametrize(("noun", "field"), POINTERS)
def test_autocompletion_offers_own_rows_alone(alice: Client, globex: Side, noun: str, field: str) -> None:
    for term in ("", "Globex", "key", globex.key.public_id, "owner"):
        query = {"app_label": "tenants", "model_name": noun, "field_name": field, "term": term}
        response = alice.get(reverse("admin:autocomplete"), query)
        assert response.status_code == (403 if field == "user" else 200)
        assert not any(trace in text_of(response).lower() for trace in ("globex", globex.key.public_id))


# Elsewhere


def test_the_search_over_everything_finds_no_other_tenant(alice: Client, globex: Side, settings: Any) -> None:
    settings.UNFOLD = {**settings.UNFOLD, "COMMAND": {"search_models": True}}
    for term in ("globex", "key", "owner", globex.key.public_id):
        response = alice.get(reverse("admin:search"), {"s": term, "extended": "1"})
        assert response.status_code == 200
        assert not any(trace in text_of(response).replace(f"?s={term}", "") for trace in ("Globex", "key of Globex", "owner@globex.test"))


def test_the_front_page_shows_no_log_of_another(alice: Client, globex: Side, root: Client) -> None:
    stranger = globex.client()
    rocket = {"name": "Globex rocket", "scopes": ["inference"], "allowed_models_choose": "every"}
    stranger.post(page("key", "add"), {**rocket, "tenant": globex.tenant.pk})
    assert LogEntry.objects.filter(object_repr__contains="Globex rocket").exists()
    for url in (reverse("admin:index"), reverse("admin:app_list", args=("tenants",))):
        assert "Globex" not in text_of(alice.get(url))


def test_history_is_of_the_row_alone(acme: Side, globex: Side, root: Client) -> None:
    root.post(page("key", "revoke", globex.key.pk), {"_form_submitted": "on"})
    root.post(page("key", "revoke", acme.key.pk), {"_form_submitted": "on"})
    entries = acme.client().get(page("key", "history", acme.key.pk)).context["action_list"]
    assert [entry.object_id for entry in entries] == [str(acme.key.pk)]


# Who is nobody here


def test_a_place_that_was_taken_away_shows_nothing(acme: Side) -> None:
    client, owner = acme.client(), acme.people[Role.OWNER]
    owner.active = False
    owner.save()
    assert client.get(page("key")).status_code == 403
    assert client.get(page("key", "change", acme.key.pk)).status_code == 404
    assert acme.tenant.name not in text_of(client.get(reverse("admin:index")))


def test_a_tenant_that_is_switched_off_shows_nothing_to_its_people(acme: Side) -> None:
    acme.tenant.active = False
    acme.tenant.save()
    assert acme.client().get(page("key")).status_code == 403


def test_django_permissions_open_nothing(acme: Side, globex: Side) -> None:
    from django.contrib.auth.models import Permission

    user = acme.people[Role.VIEWER].user
    user.user_permissions.set(Permission.objects.all())
    client = acme.client(Role.VIEWER)
    assert client.get(reverse("admin:auth_user_changelist")).status_code == 403
    assert client.get(page("key", "change", globex.key.pk)).status_code == 404
    assert client.get(page("member", "add")).status_code == 403


def test_a_staff_user_without_a_tenant_sees_none(acme: Side) -> None:
    client = Client()
    client.force_login(get_user_model().objects.create_user("drifter", "", PASSWORD, is_staff=True))
    assert client.get(reverse("admin:index")).status_code == 200
    assert client.get(page("key")).status_code == 403
    assert client.get(page("key", "change", acme.key.pk)).status_code == 404


def test_a_superuser_sees_all(root: Client, acme: Side, globex: Side) -> None:
    for noun in NOUNS:
        for side in (acme, globex):
            assert root.get(page(noun, "change", rows(side)[noun].pk)).status_code == 200
        assert "Globex" in text_of(root.get(page(noun)))
