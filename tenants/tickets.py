"""Tickets: what a browser shows at a WebSocket's upgrade, where it can send no Authorization header.

In the database, because the process that opens the socket need not be the one that sold the ticket, and deleting a row is the one
operation that succeeds for exactly one of those who try.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.utils import timezone

from inference.errors import Unauthorized
from tenants.caller import Caller
from tenants.models import Key, Ticket

LIFETIME = timedelta(seconds=60)


def sell(*, caller: Caller, model: str) -> str:
    """A new ticket for the caller's key; `model` "" leaves the choice to each request. Sweeps away those that nobody used."""
    Ticket.objects.filter(expires_at__lt=timezone.now()).delete()
    text = secrets.token_urlsafe(32)
    key = Key.objects.only("pk").get(public_id=caller.key_id)
    Ticket.objects.create(digest=digest(text), key=key, model=model, expires_at=timezone.now() + LIFETIME)
    return text


def punch(text: str) -> tuple[str, str]:
    """(the key's public id, the model) of a ticket, which is gone afterwards.

    Raises:
        Unauthorized: no such ticket, used before, or too old: one and the same answer.
    """
    ticket = Ticket.objects.select_related("key").filter(digest=digest(text)).first()
    if ticket is None:
        raise Unauthorized("The ticket is not valid.")
    deleted, _ = Ticket.objects.filter(pk=ticket.pk).delete()
    if not deleted or ticket.expires_at <= timezone.now():
        raise Unauthorized("The ticket is not valid.")
    return ticket.key.public_id, ticket.model


def digest(text: str) -> bytes:
    """The text has 256 random bits: no slow hash is needed."""
    return hashlib.sha256(text.encode()).digest()
