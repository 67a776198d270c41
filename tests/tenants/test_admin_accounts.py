"""Limits, prices, the ledger and the audit log in the admin: who sees and who sets what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tenants.entry_ids import new_id
from tenants.ledger import book
from tenants.ledger.batch import Outcome
from tenants.models import AuditEntry, Entry, Limit, Price, Role, Rollup
from tests.tenants.conftest import Side

READ = ("entry", "rollup", "auditentry")


def page(noun: str, name: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:tenants_{noun}_{name}", args=args)


def use(side: Side, model: str) -> Entry:
    at = datetime.now(UTC)
    row = Entry(id=new_id(at), tenant=side.tenant, key=side.key, model=model, endpoint="chat", request_id="r", process="", created=at,
                reserved_tokens=0, prompt_tokens=10, effective={"seed": {"value": 7, "source": "request"}})
    row.save()
    book.settle([Outcome(row.id, "completed", at, 10, 5, 0)])
    return row


def limit(client: Client, side: Side, **values: Any) -> Any:
    bounds = dict.fromkeys(("requests_per_minute", "tokens_per_minute", "concurrency", "tokens_per_day", "tokens_per_month"), "")
    form = {**bounds, "cost_per_day": "", "cost_per_month": "", "tenant": side.tenant.pk, "key": "", **values}
    return client.post(page("limit", "add"), form)


@pytest.mark.parametrize("noun", READ)
def test_rows_are_read_by_their_tenant_alone(acme: Side, globex: Side, noun: str) -> None:
    use(acme, "acmes-model")
    use(globex, "globex-model")
    model = {"entry": Entry, "rollup": Rollup, "auditentry": AuditEntry}[noun]
    theirs = model.objects.filter(tenant=globex.tenant).first()
    text = acme.client().get(page(noun)).content.decode()
    assert "globex" not in text.lower()
    assert acme.client().get(page(noun, "change", theirs.pk)).status_code == 404
    own = model.objects.filter(tenant=acme.tenant).first()
    assert acme.client().get(page(noun, "change", own.pk)).status_code == 200


@pytest.mark.parametrize("noun", READ)
def test_nobody_writes_them_by_hand(acme: Side, root: Client, noun: str) -> None:
    use(acme, "m")
    row = {"entry": Entry, "rollup": Rollup, "auditentry": AuditEntry}[noun].objects.filter(tenant=acme.tenant).first()
    assert root.get(page(noun, "add")).status_code == 403
    assert root.post(page(noun, "change", row.pk), {}).status_code == 403
    assert root.post(page(noun, "delete", row.pk), {"post": "yes"}).status_code == 403


def test_the_audit_log_is_for_managers(acme: Side) -> None:
    assert acme.client(Role.ADMIN).get(page("auditentry")).status_code == 200
    assert acme.client(Role.DEVELOPER).get(page("auditentry")).status_code == 403
    assert "Audit log" in acme.client().get(page("key")).content.decode()
    assert "Audit log" not in acme.client(Role.VIEWER).get(page("key")).content.decode()


def test_a_manager_limits_the_tenants_keys_but_not_the_tenant(acme: Side) -> None:
    assert "staff" in limit(acme.client(), acme, tokens_per_day="5").content.decode()
    assert not Limit.objects.exists()
    assert limit(acme.client(), acme, key=acme.key.pk, tokens_per_day="5").status_code == 302
    (made,) = Limit.objects.all()
    assert (made.key, made.tokens_per_day) == (acme.key, 5)


def test_the_tenants_limit_is_shown_to_it_and_set_by_staff(acme: Side, root: Client) -> None:
    limit(root, acme, tokens_per_month="1000")
    (made,) = Limit.objects.all()
    assert "tokens per month: 1,000" in acme.client().get(page("limit")).content.decode()
    assert acme.client().get(page("limit", "change", made.pk)).status_code == 200
    assert acme.client().post(page("limit", "change", made.pk), {"tokens_per_month": "9"}).status_code == 403
    assert acme.client().post(page("limit", "delete", made.pk), {"post": "yes"}).status_code == 403


def test_another_tenants_key_cannot_be_limited(acme: Side, globex: Side) -> None:
    limit(acme.client(), acme, key=globex.key.pk, tokens_per_day="0")
    limit(acme.client(), globex, key=globex.key.pk, tokens_per_day="0")
    assert not Limit.objects.exists()


def test_prices_are_the_staffs(acme: Side, root: Client) -> None:
    assert acme.client().get(page("price")).status_code == 403
    assert root.post(page("price", "add"), {"model": "m", "input": "0.5", "output": "1.5", "cached": ""}).status_code == 302
    assert Price.objects.get().model == "m"
    assert AuditEntry.objects.filter(object_type="price", action="created").exists()
