"""`/inference/v1/abort_requests` for tenants: within the tenant's own ids, on every node."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from inference.errors import PermissionDenied
from inference.protocol.codec import decode
from tokenry import pipeline
from tokenry.application import platform_state
from tokenry.auth import authenticate
from tokenry.consumers.base import ApiConsumer

GENERATE_PREFIX = "generate-tokens-"


class AbortRequest(Struct, kw_only=True):
    request_ids: list[str] | str

    def ids(self) -> list[str]:
        return [self.request_ids] if isinstance(self.request_ids, str) else self.request_ids


class AbortConsumer(ApiConsumer):
    """Answers at once; unknown ids, and other tenants', are ignored."""

    async def handle(self, body: bytes) -> None:
        state = platform_state()
        caller = await authenticate(self.scope)
        if state.options.no_scale_out:
            raise PermissionDenied("The scale-out endpoints are disabled on this server (--no-scale-out).")
        ids = [node_id(pipeline.scoped_id(caller, given.removeprefix(GENERATE_PREFIX))) for given in decode(AbortRequest, body).ids()]
        state.background(asyncio.gather(*(node.abort(ids) for node in state.fleet.nodes)))
        await self.reply(None, raw=b"")


def node_id(scoped: str) -> str:
    """The id under which a node runs what the platform posted as `scoped`."""
    return GENERATE_PREFIX + scoped
