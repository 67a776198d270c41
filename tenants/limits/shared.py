"""The counters in Valkey or Redis, for any number of platform processes. One Lua script decides and takes; holds are leases."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisError

from inference.errors import Unavailable
from tenants.limits.admission import FRESH_SECONDS, LEASE_SECONDS, Admission, Granted, ReadSpent
from tenants.limits.bounds import Hold, Order, Spent, SpentByScope
from tenants.limits.verdict import SLOT_MILLISECONDS, Reading, Refusal, Verdict

SCRIPT = Path(__file__).with_name("admission.lua").read_text(encoding="utf-8")
CHUNK = 200  # holds in one step: Valkey serves nobody else meanwhile
CONNECTIONS = 32
SECONDS_TO_ANSWER = 2.0

logger = logging.getLogger("tokenry.limits")


class SharedAdmission(Admission):
    def __init__(
        self, read_spent: ReadSpent, url: str, *, lease: float = LEASE_SECONDS, clock: Callable[[], float] | None = None
    ) -> None:
        """`clock` replaces the server's, for tests."""
        super().__init__(read_spent)
        pool = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS, timeout=SECONDS_TO_ANSWER,
            socket_timeout=SECONDS_TO_ANSWER, socket_connect_timeout=SECONDS_TO_ANSWER, retry=Retry(ExponentialBackoff(0.2, 0.02), 3),
        )
        self.redis = Redis.from_pool(pool)
        self.script = self.redis.register_script(SCRIPT)
        self.lease = lease
        self.clock = clock

    async def ask(self, order: Order, spent: SpentByScope | None) -> Verdict:
        keys = [key for scope in order.scopes for key in keys_of(order.tenant, scope.name)]
        answer = await self.call("admit", keys, {
            "order": {"id": order.id, "tokens": order.tokens, "cost": order.cost, "day": order.day},
            "bounds": [scope.bounds.given() for scope in order.scopes],
            "spent": None if spent is None else [told(spent[scope.name]) for scope in order.scopes],
            "slot": SLOT_MILLISECONDS, "fresh": FRESH_SECONDS * 1000,
        })
        return verdict(*answer)

    async def put(self, grants: Sequence[Granted]) -> None:
        for tenant, own in by_tenant(grants).items():
            for start in range(0, len(own), CHUNK):
                await self.put_some(tenant, own[start : start + CHUNK])

    async def put_some(self, tenant: str, grants: Sequence[Granted]) -> None:
        holds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for grant in grants:
            for scope in grant.order.scopes:
                holds[state_key(tenant, scope.name)].append({"id": grant.order.id, "hold": packed(grant.hold)})
        await self.call("put", companions(holds), {"holds": holds})

    async def drop(self, grants: Sequence[Granted], spent: SpentByScope) -> None:
        for tenant, own in by_tenant(grants).items():
            ids: dict[str, list[str]] = defaultdict(list)
            for grant in own:
                for scope in grant.order.scopes:
                    ids[state_key(tenant, scope.name)].append(grant.order.id)
            names = {scope.name for grant in own for scope in grant.order.scopes}
            totals = {state_key(tenant, name): told(spent[name]) for name in names if name in spent}
            await self.call("drop", companions(ids), {"ids": ids, "spent": totals})

    async def call(self, verb: str, keys: Sequence[str], payload: dict[str, Any]) -> Any:
        """Raises Unavailable: whom nobody can count may not pass."""
        payload["lease"] = self.lease * 1000
        now = "" if self.clock is None else str(int(self.clock() * 1000))
        try:
            return await self.script(keys=keys, args=[verb, msgspec.json.encode(payload), now])
        except RedisError as fault:
            logger.error("the counters cannot be reached (%s): %s", verb, fault)
            raise Unavailable("The counters of this server cannot be reached.", code="overloaded", retry_after=1) from fault

    async def close(self) -> None:
        await self.redis.aclose(close_connection_pool=True)


def state_key(tenant: str, scope: str) -> str:
    return f"tokenry:{{{tenant}}}:{scope}"


def keys_of(tenant: str, scope: str) -> tuple[str, str, str]:
    state = state_key(tenant, scope)
    return state, f"{state}:leases", f"{state}:holds"


def companions(states: Iterable[str]) -> list[str]:
    return [key for state in states for key in (state, f"{state}:leases", f"{state}:holds")]


def packed(hold: Hold) -> list[int]:
    return [hold.tick, hold.tokens, hold.cost, int(hold.running)]


def told(spent: Spent) -> Mapping[str, Any]:
    return asdict(spent)


def by_tenant(grants: Iterable[Granted]) -> Mapping[str, list[Granted]]:
    tenants: dict[str, list[Granted]] = defaultdict(list)
    for grant in grants:
        tenants[grant.order.tenant].append(grant)
    return tenants


def verdict(state: bytes, second: int, refused: Sequence[Sequence[Any]], readings: Sequence[Sequence[int]]) -> Verdict:
    refusals = [
        Refusal(place, limit.decode(), wait)
        for place, pairs in enumerate(refused)
        for limit, wait in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    read = [Reading(requests, tokens, reset) for requests, tokens, reset in readings]
    return Verdict(second, refusals, read, stale=state == b"stale")
