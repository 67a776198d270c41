"""Defaults as they were before a change, out of the audit log, and back to that."""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction

from tenants.audit import Actor, audited
from tenants.defaults import NAMES
from tenants.history import DEFAULTS, POLICY, replayed
from tenants.models import AuditEntry, Defaults, Policy

RULE = ("kind", "reject", "low", "high")


def changes(row: Defaults) -> list[AuditEntry]:
    """Of the row and its policies, newest first."""
    entries = AuditEntry.objects.filter(tenant_id=row.tenant_id, object_type__in=[DEFAULTS, POLICY]).order_by("-id")
    ours = {entry.object_id for entry in entries if entry.object_type == POLICY and str(row.pk) in owner(entry)}
    return [entry for entry in entries if (entry.object_id == str(row.pk) if entry.object_type == DEFAULTS else entry.object_id in ours)]


def owner(entry: AuditEntry) -> set[str]:
    return {str(fields["defaults_id"]) for fields in (entry.before, entry.after) if "defaults_id" in fields}


def fields(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """(field, before, after), in words; `defaults_id` and the like say nothing to a reader."""
    names = [name for name in {**entry.before, **entry.after} if not name.endswith("_id")]
    return [(NAMES.get(name, name), worded(entry.before.get(name)), worded(entry.after.get(name))) for name in names]


def worded(value: Any) -> str:
    if value is None:
        return "not set"
    return ("yes" if value else "no") if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def before(row: Defaults, entry: AuditEntry) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(columns that were set, policies) before the change."""
    earlier = [one for one in reversed(changes(row)) if one.pk < entry.pk]
    values = replayed(one for one in earlier if one.object_type == DEFAULTS).get(str(row.pk), {})
    policies = replayed(one for one in earlier if one.object_type == POLICY)
    return {column: value for column, value in values.items() if column in NAMES}, list(policies.values())


@transaction.atomic
def revert(*, row: Defaults, entry: AuditEntry, actor: Actor) -> None:
    """Set the row and its policies to what they were before the change, which itself is a change, and so can be taken back too.

    Raises:
        ValidationError: what was allowed then is not any more.
    """
    values, policies = before(row, entry)
    wanted = {policy["field"]: policy for policy in policies}
    for policy in row.policies.exclude(field__in=wanted):
        with audited(policy, actor=actor):
            policy.delete()
    for column in NAMES:
        setattr(row, column, values.get(column))
    with audited(row, actor=actor):
        row.save()
    for field, rule in wanted.items():
        policy = Policy.objects.filter(defaults=row, field=field).first() or Policy(defaults=row, field=field)
        for name in RULE:
            setattr(policy, name, rule.get(name))
        with audited(policy, actor=actor):
            policy.save()
