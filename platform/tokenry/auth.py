"""Who is calling: settled at the door, for HTTP, sockets and nodes."""

from __future__ import annotations

import hmac

from asgiref.sync import sync_to_async
from django.db import connections

from inference.errors import Unauthorized
from tenants import tickets
from tenants.caller import Caller
from tenants.callers import acaller, aholder
from tokenry.guard import Scope, bearer

TICKET = "tokenry-ticket."


async def authenticate(scope: Scope, need: str = "inference") -> Caller:
    """The tenant's caller behind an HTTP request, by its bearer key.

    Raises:
        Unauthorized: no key, unknown, expired or revoked, one and the same answer.
        ScopeMissing: the key is good but not for this.
    """
    caller = await acaller(bearer(scope))
    caller.require(need)
    return caller


async def authenticate_socket(scope: Scope) -> tuple[Caller, str]:
    """The caller of a WebSocket's upgrade, and the one model that it may use ("": any). By bearer key, or by a ticket's subprotocol.

    Raises:
        Unauthorized, ScopeMissing: as for HTTP.
    """
    ticket = next((name.removeprefix(TICKET) for name in scope.get("subprotocols", ()) if name.startswith(TICKET)), None)
    if ticket is None:
        return await authenticate(scope), ""
    key_id, model = await sync_to_async(punch, thread_sensitive=False)(ticket)
    caller = await aholder(key_id)
    caller.require("inference")
    return caller, model


def punch(ticket: str) -> tuple[str, str]:
    try:
        return tickets.punch(ticket)
    finally:
        connections.close_all()


def require_node_secret(scope: Scope, secret: str | None) -> None:
    """In constant time. A node without a secret is open, and listens on the loopback only.

    Raises:
        Unauthorized: the bearer token is not the node's secret.
    """
    if secret is None:
        return
    token = bearer(scope)
    if token is None or not hmac.compare_digest(token.encode(), secret.encode()):
        raise Unauthorized("The node secret is missing or wrong.")
