"""From a bearer token to a `Caller`, or to one and the same Unauthorized, whatever is wrong with it.

What a key may do is cached for half a second per process, so that most requests ask no database and a revocation holds within a
second everywhere. The secret and the expiry are checked on every request, cached or not.
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


def authenticate(token: str | None) -> Caller:
    """Straight from the database. Raises Unauthorized."""
    public_id, secret = keys.split(token)
    return admit(secret, selectors.credential(public_id))


def caller(token: str | None) -> Caller:
    """Through the cache, for code that runs in a thread. Raises Unauthorized."""
    public_id, secret = keys.split(token)
    return admit(secret, shared().find(public_id) if public_id else None)


async def acaller(token: str | None) -> Caller:
    """Through the cache, for the event loop: microseconds where the key is known, one query in a thread where it is not.

    No database connection is held when it returns. A long stream calls it again to learn of a revocation. Raises Unauthorized.
    """
    public_id, secret = keys.split(token)
    return admit(secret, await shared().afind(public_id) if public_id else None)


def admit(secret: str, credential: Credential | None) -> Caller:
    """The comparison comes first and always, so that the time taken tells nothing apart."""
    peppers = settings.KEY_PEPPERS
    if credential is None:
        keys.matches(secret, None, peppers, None)
        raise Unauthorized()
    if not keys.matches(secret, credential.digest, peppers, credential.pepper_version):
        raise Unauthorized()
    expires_at = credential.caller.expires_at
    if not credential.usable or (expires_at is not None and expires_at <= timezone.now()):
        raise Unauthorized()
    return credential.caller


@cache
def shared() -> CallerCache:
    """This process's cache."""
    return CallerCache(selectors.credential, seconds=getattr(settings, "CALLER_CACHE_SECONDS", 0.5))
