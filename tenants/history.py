"""What a tenant's defaults were at some time, out of the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from inference.resolve import Layer, Policy, Source
from tenants.defaults import NAMES
from tenants.models import AuditEntry

DEFAULTS, POLICY = "defaults", "policy"


def audit_entries(*, tenant_id: int | str, object_type: str | None = None, object_id: str | None = None) -> QuerySet[AuditEntry]:
    """The tenant's entries, newest first."""
    given = {"object_type": object_type, "object_id": object_id}
    return AuditEntry.objects.filter(tenant_id=tenant_id, **{name: value for name, value in given.items() if value is not None})


def layers_at(*, tenant_id: int | str, when: datetime, model: str, key_pk: int | None = None) -> tuple[Layer, ...]:
    """The tenant's part of what `inference.resolve` would have taken then: key, tenant for this model, tenant; those that said anything."""
    entries = list(audit_entries(tenant_id=tenant_id).filter(object_type__in=[DEFAULTS, POLICY], at__lte=when).order_by("at", "id"))
    rows = replayed(entry for entry in entries if entry.object_type == DEFAULTS)
    policies = replayed(entry for entry in entries if entry.object_type == POLICY)
    layers: dict[Source, Layer] = {}
    for pk, row in rows.items():
        source = source_of(row, model, key_pk)
        if source is not None:
            layers[source] = Layer(source, values_of(row), policies_of(policies, pk))
    order: tuple[Source, ...] = ("key", "tenant_model", "tenant")
    return tuple(layers[source] for source in order if source in layers)


def replayed(entries: Iterable[AuditEntry]) -> dict[str, dict[str, Any]]:
    """The rows that there were after these changes, by id. A column that a change leaves out of `after` became null."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.action == AuditEntry.Action.DELETED:
            rows.pop(entry.object_id, None)
        else:
            kept = {name: value for name, value in rows.get(entry.object_id, {}).items() if name not in entry.before}
            rows[entry.object_id] = kept | entry.after
    return rows


def source_of(row: dict[str, Any], model: str, key_pk: int | None) -> Source | None:
    """Which layer the row is for this key and model; None where it says nothing to them."""
    if row.get("key_id") is not None:
        return "key" if row["key_id"] == key_pk else None
    if row.get("model"):
        return "tenant_model" if row["model"] == model else None
    return "tenant"


def values_of(row: dict[str, Any]) -> dict[str, Any]:
    return {NAMES[column]: value for column, value in row.items() if column in NAMES}


def policies_of(policies: dict[str, dict[str, Any]], defaults_pk: str) -> dict[str, Policy]:
    return {
        row["field"]: Policy(row["kind"], row["reject"], row.get("low"), row.get("high"))
        for row in policies.values()
        if str(row["defaults_id"]) == defaults_pk
    }
