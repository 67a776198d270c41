"""The one interface of the counters, whether they are in the process or in Valkey."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tenants.limits.bounds import Hold, Order, SpentByScope
from tenants.limits.verdict import Verdict, rate_headers, refuse

ReadSpent = Callable[[Order], Awaitable[SpentByScope]]
FRESH_SECONDS = 60  # what a counter was told of the ledger's budgets is asked again after this, so that no slip of it lasts
LEASE_SECONDS = 15.0  # a hold that its process has not renewed for this long is free again: the process is dead


@dataclass(frozen=True)
class Granted:
    """An order that passed: what it holds, and the headers of its answer."""

    order: Order
    hold: Hold
    headers: Mapping[str, str]


class Admission(ABC):
    """Atomic over all scopes of an order. `read_spent` tells what the ledger has settled, which only a database knows for good."""

    renewed = True  # whether holds are leases that must be renewed

    def __init__(self, read_spent: ReadSpent) -> None:
        self.read_spent = read_spent

    async def admit(self, order: Order) -> Granted:
        """Take from every limit of the order, or from none.

        Raises:
            RateLimited, QuotaExceeded: with the headers of a refusal. Nothing was taken.
            Unavailable: the counters cannot be reached.
        """
        verdict = await self.ask(order, None)
        if verdict.stale:
            verdict = await self.ask(order, await self.read_spent(order))
        refuse(order, verdict)
        return Granted(order, Hold(verdict.tick, order.tokens, order.cost), rate_headers(order.scopes, verdict.readings))

    @abstractmethod
    async def ask(self, order: Order, spent: SpentByScope | None) -> Verdict:
        """One step: decide, and take where nothing refuses. Asking again with the same id takes nothing more.

        `spent` is what the ledger has settled in each of the order's scopes, or None before anybody has looked.
        """

    @abstractmethod
    async def put(self, grants: Sequence[Granted]) -> None:
        """State what requests hold now: corrects tokens and cost, frees the slot of one that runs no longer, renews the lease.

        What the counters have forgotten (a restart of Valkey) is there again afterwards.
        """

    @abstractmethod
    async def drop(self, grants: Sequence[Granted], spent: SpentByScope) -> None:
        """Give back the holds of requests whose rows are settled, and tell what their scopes have spent now."""

    async def close(self) -> None:  # noqa: B027 (who has no connections has nothing to do)
        """Let go of connections."""
