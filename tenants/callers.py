"""From a bearer token to a `Caller`, or to one and the same Unauthorized, whatever is wrong with it.

What a key may do is cached for half a second per process, so that most requests ask no database and a revocation holds within a
second everywhere. The secret and the expiry are checked on every request, cached or not. A refusal has to be newer than that: a key
that was made or rotated a moment ago must work, whatever the cache remembers.
"""

from __future__ import annotations

from functools import cache

from django.conf import settings
from django.utils import timezone

from inference.errors import Unauthorized
from tenants import keys, selectors
from tenants.caller import Caller, Credential
from tenants.caller_cache import CallerCache

__all__ = ["Caller", "acaller", "authenticate", "caller"]

DOUBT_SECONDS = 0.05  # how old what refuses a request may be: a flood of wrong secrets costs twenty queries a second


def authenticate(token: str | None) -> Caller:
    """Straight from the database. Raises Unauthorized."""
    public_id, secret = keys.split(token)
    return admit(secret, selectors.credential(public_id))


def caller(token: str | None) -> Caller:
    """Through the cache, for code that runs in a thread. Raises Unauthorized."""
    public_id, secret = keys.split(token)
    if not public_id:
        return admit(secret, None)
    try:
        return admit(secret, shared().find(public_id))
    except Unauthorized:
        return admit(secret, shared().find(public_id, DOUBT_SECONDS))


async def acaller(token: str | None) -> Caller:
    """Through the cache, for the event loop: microseconds where the key is known, one query in a thread where it is not.

    No database connection is held when it returns. A long stream calls it again to learn of a revocation. Raises Unauthorized.
    """
    public_id, secret = keys.split(token)
    if not public_id:
        return admit(secret, None)
    try:
        return admit(secret, await shared().afind(public_id))
    except Unauthorized:
        return admit(secret, await shared().afind(public_id, DOUBT_SECONDS))


def admit(secret: str, credential: Credential | None) -> Caller:
    """The comparison comes first and always, so that the time taken tells nothing apart."""
    peppers = settings.KEY_PEPPERS
    if credential is None:
        keys.matches(secret, None, peppers, None)
        raise Unauthorized()
    current = keys.matches(secret, credential.digest, peppers, credential.pepper_version)
    if not (current or in_grace(secret, credential)):
        raise Unauthorized()
    if not in_force(credential):
        raise Unauthorized()
    return credential.caller


def in_grace(secret: str, credential: Credential) -> bool:
    """Whether it is the secret of before the last rotation, and its time is not over."""
    retired = credential.retired
    if retired is None or retired.expires_at <= timezone.now():
        return False
    return keys.matches(secret, retired.digest, settings.KEY_PEPPERS, retired.pepper_version)


def in_force(credential: Credential) -> bool:
    """Neither switched off nor expired; the time is looked at on every request, cached or not."""
    expires_at = credential.caller.expires_at
    return credential.usable and (expires_at is None or expires_at > timezone.now())


@cache
def shared() -> CallerCache:
    """This process's cache."""
    return CallerCache(selectors.credential, seconds=getattr(settings, "CALLER_CACHE_SECONDS", 0.5))


async def aholder(public_id: str) -> Caller:
    """The caller of a key that has shown its secret before (on this connection, or when it bought a ticket). Raises Unauthorized."""
    credential = await shared().afind(public_id)
    if credential is None or not in_force(credential):
        raise Unauthorized()
    return credential.caller
