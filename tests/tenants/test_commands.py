"""create_tenant and create_key: a key shown once, a refusal as a sentence. forget: what is over."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.utils import timezone

from tenants import services
from tenants.callers import authenticate
from tenants.models import AuditEntry, Defaults, Entry, IdempotentCall, Key, RetiredSecret, Rollup, Tenant, Ticket
from tests.tenants.ledger_world import make_customer
from tests.tenants.test_usage import use


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def made(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_a_tenant_and_its_key(db: None) -> None:
    shown = made("create_tenant", "Acme Rockets")
    tenant = Tenant.objects.get()
    assert shown == {"tenant": {"id": str(tenant.pk), "name": "Acme Rockets", "slug": "acme-rockets"}, "key": shown["key"]}
    assert authenticate(shown["key"]).tenant == "acme-rockets"
    assert Key.objects.count() == 1


def test_in_words(db: None) -> None:
    words = run("create_tenant", "Acme")
    assert authenticate(next(word for word in words.split() if word.startswith("tk_"))).tenant == "acme"


def test_defaults(db: None) -> None:
    given = ("return_tokens_as_token_ids=true", "temperature=0", "stop=###", "chat_template_kwargs.a.b=false", "chat_template_kwargs.a.c=1")
    made("create_tenant", "Acme", *(part for default in given for part in ("--default", default)))
    assert Defaults.objects.get().values() == {
        "return_tokens_as_token_ids": True,
        "temperature": 0.0,
        "stop": ["###"],
        "chat_template_kwargs": {"a": {"b": False, "c": 1}},
    }


@pytest.mark.parametrize("default", ["temperature=hot", "temperature=9", "temperature", "nonsense=1", "chat_template_kwargs.a=False"])
def test_a_bad_default_is_a_sentence_and_nothing_is_made(db: None, default: str) -> None:
    with pytest.raises(CommandError, match=rf"^{default.partition('=')[0]} .+\.$") as refused:
        run("create_tenant", "Acme", "--default", "top_k=1", "--default", default)
    assert refused.value.returncode == 1
    assert not Tenant.objects.exists()


def test_a_name_that_is_taken(db: None) -> None:
    run("create_tenant", "Acme")
    with pytest.raises(CommandError, match="There is a tenant of this name already"):
        run("create_tenant", "acme")


@pytest.mark.parametrize("name", ["Acme Rockets", "acme-rockets"])
def test_another_key_by_name_or_slug(db: None, name: str) -> None:
    first = made("create_tenant", "Acme Rockets")["key"]
    shown = made("create_key", name)
    assert shown["tenant"]["slug"] == "acme-rockets"
    assert authenticate(shown["key"]).scopes == {"inference", "usage:read"}
    assert authenticate(first).key_id != authenticate(shown["key"]).key_id


@pytest.mark.parametrize("flags", ["--scope inference --scope keys:manage", "--scope inference keys:manage inference"])
def test_scopes(db: None, flags: str) -> None:
    run("create_tenant", "Acme")
    assert authenticate(made("create_key", "acme", *flags.split())["key"]).scopes == {"inference", "keys:manage"}


@pytest.mark.parametrize(("arguments", "words"), [(("nobody",), "There is no tenant 'nobody'"), (("acme", "--scope", "root"), "scopes")])
def test_a_bad_key_is_a_sentence_and_none_is_made(db: None, arguments: tuple[str, ...], words: str) -> None:
    run("create_tenant", "Acme")
    with pytest.raises(CommandError, match=words):
        run("create_key", *arguments)
    assert Key.objects.count() == 1


# Retention


def test_what_is_old_or_expired_is_forgotten_and_nothing_else(database: str) -> None:
    customer = make_customer("Acme")
    now = timezone.now()
    old, young = (use(customer, now - timedelta(days=days)) for days in (31, 29))
    sums = Rollup.objects.count()
    key = services.create_key(tenant=customer.tenant, name="other")[0]
    for moment in (now - timedelta(seconds=1), now + timedelta(minutes=1)):
        name = moment.isoformat()
        Ticket.objects.create(digest=hashlib.sha256(name.encode()).digest(), key=customer.key, expires_at=moment)
        IdempotentCall.objects.create(
            key=customer.key, name=name, fingerprint=b"f", result=key, salt=b"s", pepper_version=1, expires_at=moment)
        session = SessionStore()
        session.create()
        Session.objects.filter(pk=session.session_key).update(expire_date=moment)
    RetiredSecret.objects.create(key=key, digest=b"d", pepper_version=1, expires_at=now - timedelta(days=1))
    log = AuditEntry.objects.count()
    assert run("forget", "--days", "30") == "Deleted 1 requests and 3 expired tickets, calls and secrets.\n"
    assert list(Entry.objects.values_list("id", flat=True)) == [young]
    assert old != young
    assert [model.objects.count() for model in (Ticket, IdempotentCall, RetiredSecret, Session)] == [1, 1, 0, 1]
    assert (Rollup.objects.count(), AuditEntry.objects.count(), Key.objects.count()) == (sums, log, 2)
    assert run("forget").startswith("Deleted 0 requests and 0 ")


@pytest.mark.parametrize("days", ["0", "-3"])
def test_today_cannot_be_forgotten(db: None, days: str) -> None:
    with pytest.raises(CommandError, match="at least 1"):
        run("forget", "--days", days)
