"""The audit log: who changed what, before and after, when and from where. Written with the change, in its transaction.

    with audit.audited(row, actor=actor):
        row.save()          # or row.delete()

Secrets never get in: of a binary column, or a password, only a fingerprint is kept, enough to see that it changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction

from tenants.caller import Caller
from tenants.models import AuditEntry, Tenant

MASK = "•••"
SECRET = "password"  # a hash, which is no less to be kept
UNTOLD = "last_login"  # moves with every login, and nobody's deed
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Actor:
    """`id` is member:ID, user:ID, key:PUBLIC-ID or system; `source` the door that it came through, with an address where there is one."""

    id: str
    name: str
    source: str


def key_actor(caller: Caller, source: str) -> Actor:
    return Actor(f"key:{caller.key_id}", f"key {caller.key_id} of {caller.tenant}", source)


def user_actor(user: Any, source: str) -> Actor:
    return Actor(f"user:{user.pk}", str(user), source)


def system_actor(source: str) -> Actor:
    return Actor("system", "system", source)


@contextmanager
def audited(row: models.Model, *, actor: Actor) -> Iterator[None]:
    """Record what happens to the row meanwhile, as the database has it; nothing where nothing changes."""
    with transaction.atomic():
        pk, before = row.pk, stored(row, row.pk)
        if before is not None:
            tenant_of(row)  # loads what the row belongs to, which may go with it
        yield
        after = stored(row, pk if row.pk is None else row.pk)
        record(actor=actor, row=row, before=before, after=after, object_id=str(pk if row.pk is None else row.pk))


def record(
    *, actor: Actor, row: models.Model, before: Fields | None, after: Fields | None, object_id: str | None = None
) -> AuditEntry | None:
    """One entry: `before` None made the row, `after` None took it away. Returns None, and writes nothing, where they are equal."""
    if before == after:
        return None
    old, new = dict(before or {}), dict(after or {})
    changed = {name for name in old | new if old.get(name) != new.get(name)}
    entry = AuditEntry(
        tenant_id=tenant_of(row), actor=actor.id, actor_name=actor.name[:200], source=actor.source[:120],
        action=action(before, after), object_type=row._meta.model_name, object_id=str(row.pk) if object_id is None else object_id,
        object_name=str(row)[:200],
        before={name: old[name] for name in sorted(changed & set(old))}, after={name: new[name] for name in sorted(changed & set(new))},
    )
    entry.save()
    return entry


def action(before: Fields | None, after: Fields | None) -> str:
    if before is None:
        return AuditEntry.Action.CREATED
    return AuditEntry.Action.DELETED if after is None else AuditEntry.Action.CHANGED


def stored(row: models.Model, pk: Any) -> Fields | None:
    found = None if pk is None else type(row)._base_manager.filter(pk=pk).first()
    return None if found is None else snapshot(found)


def snapshot(row: models.Model) -> dict[str, Any]:
    """The row's columns as JSON can hold them, without those that are null: in a diff, absent is null."""
    names = [field.attname for field in row._meta.concrete_fields if not field.primary_key and field.attname != UNTOLD]
    values = {name: getattr(row, name) for name in names}
    return {name: masked(value) if name == SECRET else shown(value) for name, value in values.items() if value is not None}


def masked(value: str | bytes | memoryview) -> str:
    return MASK + hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()[:6]


def shown(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return masked(value)
    if isinstance(value, bool | int | float | str | list | dict):
        return value
    return DjangoJSONEncoder().default(value)


def tenant_of(row: Any) -> int | None:
    """Of a tenant itself, of what belongs to one, or of what belongs to its defaults; None of what all tenants share."""
    if isinstance(row, Tenant):
        return int(row.pk)
    owner = getattr(row, "defaults", None) if hasattr(row, "defaults_id") else row
    tenant_id: int | None = getattr(owner, "tenant_id", None)
    return tenant_id
