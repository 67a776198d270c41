"""The audit log: written with the change, never changed itself; and what applied at some time, out of it."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest
from django.utils import timezone

from inference.resolve import resolve
from tenants import audit, services
from tenants.audit import audited, system_actor
from tenants.history import audit_entries, layers_at
from tenants.models import AuditEntry, Defaults, Key, Policy, Price, Tenant

ACTOR = system_actor("a test")


@pytest.fixture
def tenant(db: None) -> Tenant:
    return Tenant.objects.create(name="Acme", slug="acme")


def test_only_what_differs_is_kept(tenant: Tenant) -> None:
    row = Defaults(tenant=tenant, temperature=0.5, include_reasoning=False)
    with audited(row, actor=ACTOR):
        row.save()
    row.temperature, row.top_p = None, 0.9
    with audited(row, actor=ACTOR):
        row.save()
    changed, created = audit_entries(tenant_id=tenant.pk)
    assert (created.action, created.before) == ("created", {})
    assert created.after["include_reasoning"] is False
    assert (changed.action, changed.before, changed.after) == ("changed", {"temperature": 0.5}, {"top_p": 0.9})
    assert (changed.object_type, changed.object_id, changed.source) == ("defaults", str(row.pk), "a test")


def test_what_changes_nothing_is_not_recorded(tenant: Tenant) -> None:
    with audited(tenant, actor=ACTOR):
        tenant.save()
    assert not AuditEntry.objects.exists()


def test_what_fails_is_not_recorded(tenant: Tenant) -> None:
    tenant.name = "Other"

    def fail() -> None:
        with audited(tenant, actor=ACTOR):
            tenant.save()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert not AuditEntry.objects.exists()
    tenant.refresh_from_db()
    assert tenant.name == "Acme"


def test_a_deletion_keeps_what_there_was(tenant: Tenant) -> None:
    row = Defaults.objects.create(tenant=tenant, seed=7)
    pk = row.pk
    with audited(row, actor=ACTOR):
        row.delete()
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.object_id, entry.after) == ("deleted", str(pk), {})
    assert entry.before["seed"] == 7


def test_rows_of_no_tenant_can_be_recorded(db: None) -> None:
    price = Price(model="m", input=Decimal("1.5"))
    with audited(price, actor=ACTOR):
        price.save()
    [entry] = AuditEntry.objects.all()
    assert (entry.tenant_id, entry.after["input"]) == (None, "1.500000")


def test_the_log_is_append_only(tenant: Tenant) -> None:
    entry = audit.record(actor=ACTOR, row=tenant, before=None, after=audit.snapshot(tenant))
    assert entry is not None
    for attempt in (entry.save, entry.delete, AuditEntry.objects.all().delete, lambda: AuditEntry.objects.update(actor="other")):
        with pytest.raises(TypeError):
            attempt()


def test_what_applied_at_a_time(tenant: Tenant) -> None:
    """As the rows were then, through changes, policies, a key's own defaults, and a deletion."""
    key, _ = services.create_key(tenant=tenant, name="k")
    times = [timezone.now()]

    def change(row: Defaults | Policy, **values: object) -> None:
        with audited(row, actor=ACTOR):
            for name, value in values.items():
                setattr(row, name, value)
            row.save()
        times.append(timezone.now())

    wide, narrow, own = Defaults(tenant=tenant), Defaults(tenant=tenant, model="m"), Defaults(tenant=tenant, key=key)
    change(wide, temperature=0.1, top_p=0.5)
    change(narrow, temperature=0.2)
    change(own, stream_options_include_usage=True)
    change(wide, top_p=None)
    policy = Policy(defaults=narrow, field="temperature", kind="enforced")
    change(policy, reject=True)
    with audited(narrow, actor=ACTOR):
        narrow.delete()

    def at(when: datetime, key: Key | None = key, model: str = "m") -> tuple[object, ...]:
        layers = layers_at(tenant_id=tenant.pk, when=when, model=model, key_pk=None if key is None else key.pk)
        found = resolve({}, layers)
        return found["temperature"], found["top_p"], found["stream_options.include_usage"], len(layers)

    assert at(times[0]) == (1.0, 1.0, False, 0)
    assert at(times[1]) == (0.1, 0.5, False, 1)
    assert at(times[2]) == (0.2, 0.5, False, 2)
    assert at(times[2], model="other") == (0.1, 0.5, False, 1)
    assert at(times[3]) == (0.2, 0.5, True, 3)
    assert at(times[3], key=None) == (0.2, 0.5, False, 2)
    assert at(times[4]) == (0.2, 1.0, True, 3)
    [_, enforced, _] = layers_at(tenant_id=tenant.pk, when=times[5], model="m", key_pk=key.pk)
    assert enforced.policies["temperature"].reject
    assert at(timezone.now()) == (0.1, 1.0, True, 2)
