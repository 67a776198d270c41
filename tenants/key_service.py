"""Keys by key: what `/v1/keys` does for a caller with the scope keys:manage, within the caller's tenant, with an audit entry for all of it.

Nobody gets more than they have: a key whose text a caller is given, new or rotated, may do no more than the caller's own, and no longer.

A call with an Idempotency-Key that is repeated gives the first one's answer again, the secret included. That secret is not stored: it is
derived from a random salt under the server's pepper, and the salt is forgotten after a day.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from inference.errors import BadRequest, Conflict, NotFound, PermissionDenied
from tenants import keys
from tenants.audit import audited, key_actor
from tenants.caller import Caller
from tenants.models import IdempotentCall, Key, Limit, RetiredSecret
from tenants.services import atomic
from tenants.usage import Page, checked

REPEATABLE = timedelta(days=1)
LONGEST_GRACE = timedelta(days=30)
LONGEST_NAME = 255


@dataclass(frozen=True)
class Issued:
    """A key and its text, which is shown now and not kept."""

    key: Key
    text: str = field(repr=False)


Issue = Callable[[Key, keys.Secret], Key]  # (the caller's own key, a secret) to the key that now has it


def create_key(
    *, caller: Caller, name: str, scopes: Sequence[str] = keys.DEFAULT_SCOPES, allowed_models: list[str] | None = None,
    expires_at: datetime | None = None, limits: Mapping[str, Any] | None = None, idempotency_key: str | None = None, source: str = "api",
) -> Issued:
    """A new key of the caller's tenant. It stops with the member who made the caller's key. `limits` are by the names of `Limit`.

    Raises:
        BadRequest: a value that cannot be; `param` names the field.
        PermissionDenied: the key would do more than the caller's own; `param` names the field.
        Conflict: the Idempotency-Key was used for something else.
    """
    asked = {"name": name, "scopes": list(scopes), "allowed_models": allowed_models, "expires_at": expires_at}
    if expires_at is not None and expires_at <= timezone.now():
        raise BadRequest("expires_at must be in the future.", "expires_at")

    def issue(own: Key, secret: keys.Secret) -> Key:
        key = Key(tenant=own.tenant, created_by=own.created_by, public_id=secret.public_id, **asked)
        give(key, secret)
        with audited(key, actor=key_actor(caller, source)):
            save(key)
        require_no_more(own, key)
        if limits is not None:
            limit = limit_of(key, limits)
            with audited(limit, actor=key_actor(caller, source)):
                save(limit)
        return key

    return once(caller, idempotency_key, {"create": asked | {"limits": limits}}, issue)


def rotate_key(
    *, caller: Caller, public_id: str, grace: timedelta = timedelta(0), idempotency_key: str | None = None, source: str = "api"
) -> Issued:
    """A new secret for a key that stays what it is. The one before works on for `grace`; one that was in its grace ends now.

    Raises:
        NotFound: no such key in the caller's tenant.
        BadRequest: `grace` is negative, or longer than 30 days.
        PermissionDenied: the key may do more than the caller's own.
        Conflict: the key is revoked or expired, or the Idempotency-Key was used for something else.
    """
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        raise BadRequest(f"grace_seconds must be between 0 and {LONGEST_GRACE.total_seconds():.0f}.", "grace_seconds")

    def issue(own: Key, secret: keys.Secret) -> Key:
        key = locked(caller, public_id)
        if key.state != "active":
            raise Conflict(f"The key is {key.state} and cannot be rotated.")
        require_no_more(own, key)
        with audited(key, actor=key_actor(caller, source)):
            retire(key, grace)
            give(key, secret)
            save(key)
        return key

    return once(caller, idempotency_key, {"rotate": public_id, "grace": grace.total_seconds()}, issue, public_id)


@atomic
def revoke_key(*, caller: Caller, public_id: str, source: str = "api") -> Key:
    """For good, and within a second everywhere. A second revocation changes nothing. Raises NotFound."""
    key = locked(caller, public_id)
    if key.revoked_at is None:
        with audited(key, actor=key_actor(caller, source)):
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])
    return key


def find_key(*, caller: Caller, public_id: str) -> Key:
    """Raises NotFound, for another tenant's key too."""
    key: Key | None = Key.objects.filter(tenant_id=caller.tenant_id, public_id=public_id).select_related("limit").first()
    if key is None:
        raise NotFound("There is no such key.", "id")
    return key


def list_keys(*, caller: Caller, after: str | None = None, limit: int = 100) -> Page[Key]:
    """The tenant's keys, newest first, the revoked ones too. `after` is the public id that the last page ended with."""
    rows = Key.objects.filter(tenant_id=caller.tenant_id).select_related("limit").order_by("-pk")
    if after is not None:
        rows = rows.filter(pk__lt=find_key(caller=caller, public_id=after).pk)
    found = list(rows[: checked(limit) + 1])
    return Page(found[:limit], found[limit - 1].public_id if len(found) > limit else None)


def once(caller: Caller, name: str | None, asked: Mapping[str, Any], issue: Issue, public_id: str | None = None) -> Issued:
    """Do it, or, where it was done before under this name, say again what it gave. Of two at once one waits and repeats."""
    if name is not None and not 1 <= len(name) <= LONGEST_NAME:
        raise BadRequest(f"Idempotency-Key must have 1 to {LONGEST_NAME} characters.", "Idempotency-Key")
    try:
        with transaction.atomic():
            return issue_or_repeat(caller, name, fingerprint(asked), issue, public_id)
    except IntegrityError:
        if name is None:
            raise
        with transaction.atomic():
            return issue_or_repeat(caller, name, fingerprint(asked), issue, public_id)


def issue_or_repeat(caller: Caller, name: str | None, asked: bytes, issue: Issue, public_id: str | None) -> Issued:
    own = Key.objects.select_related("tenant", "created_by").get(public_id=caller.key_id)
    salt, version = secrets.token_bytes(32), keys.newest(settings.KEY_PEPPERS)
    if name is not None:
        IdempotentCall.objects.filter(expires_at__lte=timezone.now()).delete()
        before = IdempotentCall.objects.select_related("result").filter(key=own, name=name).first()
        if before is not None:
            return repeated(before, asked)
    secret = derived(secrets.token_hex(8) if public_id is None else public_id, salt, version)
    key = issue(own, secret)
    if name is not None:
        IdempotentCall.objects.create(
            key=own, name=name, fingerprint=asked, result=key, salt=salt, pepper_version=version, expires_at=timezone.now() + REPEATABLE)
    return Issued(key, secret.text)


def repeated(before: IdempotentCall, asked: bytes) -> Issued:
    if not hmac.compare_digest(bytes(before.fingerprint), asked):
        raise Conflict("This Idempotency-Key was used for another request.")
    if before.pepper_version not in settings.KEY_PEPPERS:
        raise Conflict("This request can no longer be repeated: the server's pepper has changed.")
    return Issued(before.result, derived(before.result.public_id, bytes(before.salt), before.pepper_version).text)


def derived(public_id: str, salt: bytes, version: int) -> keys.Secret:
    """256 bits that are random to whoever lacks the pepper or the salt; the salt is kept only where the call may be repeated."""
    pepper = settings.KEY_PEPPERS[version]
    return keys.Secret(public_id, hmac.digest(pepper, b"secret of a key\0" + salt, "sha256").hex())


def fingerprint(asked: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).digest()


def give(key: Key, secret: keys.Secret) -> None:
    key.last_four = secret.last_four
    key.pepper_version = keys.newest(settings.KEY_PEPPERS)
    key.digest = keys.digest(secret.value, settings.KEY_PEPPERS, key.pepper_version)


def retire(key: Key, grace: timedelta) -> None:
    RetiredSecret.objects.filter(key=key).delete()
    if grace:
        RetiredSecret.objects.create(
            key=key, digest=bytes(key.digest), pepper_version=key.pepper_version, expires_at=timezone.now() + grace)


def locked(caller: Caller, public_id: str) -> Key:
    key: Key | None = Key.objects.select_for_update().filter(tenant_id=caller.tenant_id, public_id=public_id).first()
    if key is None:
        raise NotFound("There is no such key.", "id")
    return key


def require_no_more(own: Key, key: Key) -> None:
    """Raises PermissionDenied, naming the first field by which `key` goes beyond the caller's own key."""
    if not set(key.scopes) <= set(own.scopes):
        raise PermissionDenied(f"Your own key has no other scopes than {', '.join(own.scopes)}.", "scopes")
    if own.allowed_models is not None and (key.allowed_models is None or not set(key.allowed_models) <= set(own.allowed_models)):
        raise PermissionDenied(f"Your own key may use no other models than {', '.join(own.allowed_models) or 'none'}.", "allowed_models")
    if own.expires_at is not None and (key.expires_at is None or key.expires_at > own.expires_at):
        raise PermissionDenied(f"Your own key ends at {own.expires_at.isoformat()}, and none that it makes may last longer.", "expires_at")


def limit_of(key: Key, limits: Mapping[str, Any]) -> Limit:
    names = {f.name for f in Limit._meta.concrete_fields} - {"id", "tenant", "key"}
    unknown = sorted(set(limits) - names)
    if unknown:
        raise BadRequest(f"{unknown[0]} is not a limit. Limits: {', '.join(sorted(names))}.", f"limits.{unknown[0]}")
    return Limit(tenant=key.tenant, key=key, **limits)


def save(row: Key | Limit) -> None:
    """Raises BadRequest, naming the first field at fault."""
    try:
        row.save()
    except ValidationError as fault:
        name, messages = next(iter(fault.message_dict.items()))
        prefix = "limits." if isinstance(row, Limit) else ""
        raise BadRequest(" ".join(messages), None if name == "__all__" else prefix + name) from None
