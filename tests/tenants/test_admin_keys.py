"""A key in the admin: shown once, then never; revoked for good."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from inference.errors import Unauthorized
from tenants.callers import authenticate
from tenants.models import Key
from tests.tenants.conftest import Side

NEW: dict[str, Any] = {"name": "new", "scopes": ["inference"], "allowed_models_choose": "every"}
KEY = re.compile(r"tk_[0-9a-f]{16}_[0-9a-f]{64}")


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:tenants_key_{name}", args=args)


def make(client: Client, side: Side, **data: Any) -> Any:
    return client.post(page("add"), {**NEW, "tenant": side.tenant.pk, **data})


@pytest.mark.parametrize("button", ["_save", "_continue", "_addanother", "_popup"])
def test_the_key_is_in_the_answer_whatever_was_pressed(acme: Side, button: str) -> None:
    response = make(acme.client(), acme, **{button: "1"})
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    found = set(KEY.findall(response.content.decode()))
    assert len(found) == 1
    assert authenticate(found.pop()).scopes == {"inference"}


def test_it_is_nowhere_else(acme: Side) -> None:
    client = acme.client()
    secret = KEY.findall(make(client, acme).content.decode())[0].rpartition("_")[2]
    key = Key.objects.get(name="new")
    for url in (page("change", key.pk), page("changelist"), page("history", key.pk), reverse("admin:index")):
        assert secret not in client.get(url).content.decode()
    assert not any(secret in str(session.get_decoded()) for session in Session.objects.all())
    assert not any(secret in entry.change_message + entry.object_repr for entry in LogEntry.objects.all())
    row = Key.objects.filter(pk=key.pk).values().get()
    assert secret not in str(row)
    assert bytes.fromhex(secret) != bytes(row["digest"])


def test_afterwards_a_key_is_known_by_its_public_id_and_last_four(acme: Side) -> None:
    content = acme.client().get(page("change", acme.key.pk)).content.decode()
    assert acme.key.public_id in content
    assert acme.key_text[-4:] in content


def test_what_makes_the_secret_cannot_be_edited(acme: Side) -> None:
    forged = {"public_id": "0" * 16, "digest": "x", "pepper_version": "9", "last_four": "0000", "created_by": "1"}
    row = Key.objects.filter(pk=acme.key.pk)
    before = row.values(*forged).get()
    acme.client().post(page("change", acme.key.pk), {**NEW, **forged})
    assert row.values(*forged).get() == before
    assert row.get().name == "new"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": ""}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"allowed_models_choose": "some"}, "allowed_models"),
        ({"allowed_models_choose": "every", "allowed_models_names": "m"}, "allowed_models"),
        ({"expires_at_0": "someday"}, "expires_at"),
    ],
)
def test_a_bad_key_is_refused_by_field_and_none_is_made(acme: Side, data: dict[str, Any], field: str) -> None:
    response = make(acme.client(), acme, **data)
    assert field in response.context["adminform"].form.errors
    assert not KEY.search(response.content.decode())
    assert Key.objects.filter(tenant=acme.tenant).count() == 1


@pytest.mark.parametrize(("names", "stored"), [("a, b ,c", ["a", "b", "c"]), ("", []), (" , ", [])])
def test_only_these_models(acme: Side, names: str, stored: list[str]) -> None:
    make(acme.client(), acme, allowed_models_choose="only", allowed_models_names=names)
    assert Key.objects.get(name="new").allowed_models == stored


def test_all_and_none_of_the_models_stay_apart_when_a_form_is_sent_back(acme: Side) -> None:
    for stored, shown in ((None, ["every", ""]), ([], ["only", ""]), (["a", "b"], ["only", "a, b"])):
        acme.key.allowed_models = stored
        acme.key.save()
        form = acme.client().get(page("change", acme.key.pk)).context["adminform"].form
        assert form["allowed_models"].field.widget.decompress(form["allowed_models"].value()) == shown
        sent = {**NEW, "allowed_models_choose": shown[0], "allowed_models_names": shown[1]}
        acme.client().post(page("change", acme.key.pk), sent)
        acme.key.refresh_from_db()
        assert acme.key.allowed_models == stored


# Revocation


def test_a_look_at_the_question_revokes_nothing(acme: Side) -> None:
    response = acme.client().get(page("revoke", acme.key.pk))
    assert response.status_code == 200
    acme.client().post(page("revoke", acme.key.pk))
    acme.key.refresh_from_db()
    assert acme.key.revoked_at is None


def test_revoking_needs_the_form_of_this_site(acme: Side) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(acme.people["owner"].user)
    assert client.post(page("revoke", acme.key.pk), {"_form_submitted": "on"}).status_code == 403
    assert authenticate(acme.key_text)


def test_a_revoked_key_is_dead_and_cannot_be_brought_back(acme: Side) -> None:
    client = acme.client()
    client.post(page("revoke", acme.key.pk), {"_form_submitted": "on"})
    with pytest.raises(Unauthorized):
        authenticate(acme.key_text)
    when = Key.objects.get(pk=acme.key.pk).revoked_at
    for url in (page("change", acme.key.pk), page("revoke", acme.key.pk)):
        assert client.post(url, {**NEW, "_form_submitted": "on"}).status_code == 403
    assert Key.objects.get(pk=acme.key.pk).revoked_at == when is not None
    assert "Revoked." in client.get(page("history", acme.key.pk)).content.decode()


def test_several_are_revoked_from_the_list(acme: Side) -> None:
    make(acme.client(), acme)
    keys = list(Key.objects.filter(tenant=acme.tenant).values_list("pk", flat=True))
    acme.client().post(page("changelist"), {"action": "revoke_selected", "_selected_action": keys})
    assert not Key.objects.filter(tenant=acme.tenant, revoked_at=None).exists()


@pytest.mark.parametrize(("state", "count"), [("active", 1), ("revoked", 0), ("expired", 0), ("nonsense", 1)])
def test_the_list_is_filtered_by_state(acme: Side, state: str, count: int) -> None:
    assert acme.client().get(page("changelist"), {"state": state}).context["cl"].result_count == count
