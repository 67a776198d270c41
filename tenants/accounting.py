"""What a request costs: admitted at the door, written down, and settled once, whatever becomes of it.

    admitted = await accounting.admit(caller, ...)      # or RateLimited, QuotaExceeded, Unavailable: nothing was taken
    ...                                                 # send the request to a node
    await admitted.written()                            # before anything of the answer is sent
    admitted.progress(tokens)                           # as often as tokens are sent
    await admitted.settle(Status.COMPLETED, ...)        # before the last byte: then the caller's next request finds its slot free

`settle` acts at once and needs no shield: what it returns is only for those who want to wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from inference.errors import ApiError, Unavailable
from tenants import storable
from tenants.caller import Caller
from tenants.ledger import Outcome, Writer, book, sweep
from tenants.limits import Admission, Granted, Hold, LocalAdmission, Order, SharedAdmission, Spent
from tenants.models import Entry, Price, Process, Status
from tenants.money import FREE, Rates
from tenants.orders import make_order
from tenants.threads import in_thread

RENEW_SECONDS = 5.0  # a third of a lease
CHECKPOINT_SECONDS = 2.0
SWEEP_SECONDS = 30.0
PRICE_SECONDS = 5.0
WRITTEN_SECONDS = 5.0
STOP_SECONDS = 10.0

logger = logging.getLogger("tokenry.accounting")


@dataclass(eq=False)
class Admitted:
    """A request that has been let in. As a context manager it is settled on the way out, if nobody has done so before."""

    accounting: Accounting
    entry: Entry
    grant: Granted
    row: asyncio.Future[None]
    sent: int = 0
    noted: int = 0  # of `sent`, what the ledger knows
    released: asyncio.Future[None] | None = field(default=None, repr=False)

    @property
    def headers(self) -> Mapping[str, str]:
        """The rate limit headers of the answer."""
        return self.grant.headers

    async def written(self) -> None:
        """Until the row is committed: nothing is answered that the ledger does not know of.

        Raises:
            Unavailable: the database has been away for too long.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self.row), WRITTEN_SECONDS)
        except TimeoutError:
            raise Unavailable("The ledger cannot be written.", code="overloaded", retry_after=1) from None

    def progress(self, completion_tokens: int) -> None:
        """How many tokens have been sent by now: what is billed if this process dies."""
        self.sent = completion_tokens

    def settle(
        self, status: str, *, completion_tokens: int, cached_tokens: int = 0, prompt_tokens: int | None = None
    ) -> Awaitable[None]:
        """The end. The first call counts, any other does nothing. Of a failure without a token not even the prompt is billed.

        What is returned is done when the slot is free and the tokens are counted as they were; the row follows within moments.
        """
        if self.released is None:
            prompt = self.entry.prompt_tokens if prompt_tokens is None else prompt_tokens
            billed = 0 if status == Status.FAILED and completion_tokens == 0 else prompt
            outcome = Outcome(self.entry.id, status, datetime.now(UTC), billed, completion_tokens, min(cached_tokens, billed))
            self.released = self.accounting.settle(self, outcome)
        return asyncio.shield(self.released)

    async def __aenter__(self) -> Admitted:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        await self.settle(status_after(kind), completion_tokens=self.sent)


def status_after(fault: type[BaseException] | None) -> str:
    if fault is None:
        return Status.COMPLETED
    return Status.FAILED if issubclass(fault, Exception) else Status.CANCELLED


class Accounting:
    """One per platform process. Without a URL of Valkey the counters are in the process, and no other may run beside it."""

    def __init__(self, url: str | None = None) -> None:
        self.alone = url is None
        self.process = secrets.token_hex(16)
        self.admission: Admission = LocalAdmission(read_spent) if url is None else SharedAdmission(read_spent, url)
        self.writer = Writer(self.process, self.confirm)
        self.prices: Mapping[str, Rates] = {}
        self.live: dict[str, Admitted] = {}
        self.tasks: set[asyncio.Future[Any]] = set()
        self.rounds: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Rows that an earlier life of this process left open are settled before the first request, where nobody else could own them."""
        await self.read_prices()
        if self.alone:
            await in_thread(sweep.sweep, me=self.process, alone=True)
        self.writer.start()
        await self.checkpoint()
        self.rounds = [
            asyncio.create_task(every(RENEW_SECONDS, self.renew)),
            asyncio.create_task(every(CHECKPOINT_SECONDS, self.checkpoint)),
            asyncio.create_task(every(SWEEP_SECONDS, self.sweep)),
            asyncio.create_task(every(PRICE_SECONDS, self.read_prices)),
        ]

    async def stop(self) -> None:
        """Whoever still runs is settled with what it has sent, and everything is written."""
        for task in self.rounds:
            task.cancel()
        for admitted in list(self.live.values()):
            admitted.settle(Status.CANCELLED, completion_tokens=admitted.sent)
        if await self.writer.stop(STOP_SECONDS):
            await in_thread(Process.objects.filter(id=self.process).delete)
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.admission.close()

    async def admit(
        self, caller: Caller, *, model: str, endpoint: str, request_id: str, prompt_tokens: int, max_tokens: int | None,
        choices: int = 1, effective: dict[str, dict[str, Any]],
    ) -> Admitted:
        """Check every limit of the caller's key and tenant, take from them, and begin the ledger's row.

        Args:
            prompt_tokens: of all prompts of the request together.
            max_tokens: what was asked for per choice, by the request or a default; None where nobody named a maximum.
            choices: in all.
            effective: the parameters that are not as built in (`Effective.differing`).

        Raises:
            RateLimited, QuotaExceeded: with the headers that the refusal carries.
            Unavailable: the counters or the ledger cannot be reached.
        """
        self.writer.require_room()
        rates = self.rates(model)
        order = make_order(caller, rates, prompt_tokens, max_tokens, choices)
        grant = await self.take(order)
        entry = Entry(
            id=order.id, tenant_id=caller.tenant_id, key_id=caller.key_id, model=model, endpoint=endpoint,
            request_id=storable.text(request_id, 200), process=self.process, created=order.created,
            reserved_tokens=order.tokens, prompt_tokens=prompt_tokens,
            rate_input=rates.input, rate_output=rates.output, rate_cached=rates.cached, effective=storable.parameters(effective),
        )
        admitted = self.live[order.id] = Admitted(self, entry, grant, self.writer.begin(entry))
        return admitted

    async def take(self, order: Order) -> Granted:
        """A caller who leaves while the counters are asked must not take with it what they have granted."""
        if not order.scopes:
            return Granted(order, Hold(0, order.tokens, order.cost), {})
        asked = asyncio.ensure_future(self.admission.admit(order))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            self.keep(self.undo(asked))
            raise

    async def undo(self, asked: asyncio.Future[Granted]) -> None:
        try:
            grant = await asked
        except ApiError:
            return
        grant.hold.running, grant.hold.tokens, grant.hold.cost = False, 0, 0
        await self.admission.put([grant])
        await self.admission.drop([grant], {})

    def settle(self, admitted: Admitted, outcome: Outcome) -> asyncio.Future[None]:
        hold = admitted.grant.hold
        hold.running = False
        hold.tokens = outcome.prompt_tokens + outcome.completion_tokens
        hold.cost = admitted.entry.rates.cost(
            prompt=outcome.prompt_tokens, completion=outcome.completion_tokens, cached=outcome.cached_tokens)
        self.writer.settle(outcome)
        return self.keep(self.release(admitted))

    async def release(self, admitted: Admitted) -> None:
        """If the counters cannot be told now, they are with the next renewal."""
        if admitted.grant.order.scopes:
            try:
                await self.admission.put([admitted.grant])
            except Unavailable:
                logger.warning("the slot of %s is freed later", admitted.entry.request_id)

    def confirm(self, outcomes: Sequence[Outcome], spent: Mapping[str, Spent]) -> None:
        """The rows are settled: from here on the ledger's sums count, and not what was held."""
        done = [admitted for outcome in outcomes if (admitted := self.live.pop(outcome.id, None)) is not None]
        counted = [admitted for admitted in done if admitted.grant.order.scopes]
        if counted:
            self.keep(self.drop(counted, spent))

    async def drop(self, done: Sequence[Admitted], spent: Mapping[str, Spent]) -> None:
        """After the release, which would hold again what is dropped. If it fails the leases end by themselves, as nobody renews them."""
        await asyncio.gather(*(admitted.released for admitted in done if admitted.released is not None))
        try:
            await self.admission.drop([admitted.grant for admitted in done], spent)
        except Unavailable:
            logger.warning("the counters learn of %d settled requests later", len(done))

    async def renew(self) -> None:
        """Leases of all that has not been confirmed; a request that has outgrown its estimate takes what it really has."""
        changed = []
        for admitted in self.live.values():
            hold, used = admitted.grant.hold, admitted.entry.prompt_tokens + admitted.sent
            outgrown = hold.running and used > hold.tokens
            if outgrown:
                hold.tokens = used
            if admitted.grant.order.scopes and (outgrown or self.admission.renewed):
                changed.append(admitted.grant)
        if changed:
            await self.admission.put(changed)

    async def checkpoint(self) -> None:
        """The process lives, and its requests have sent this much."""
        sent = {}
        for admitted in self.live.values():
            if admitted.released is None and admitted.sent != admitted.noted:
                sent[admitted.entry.id] = admitted.noted = admitted.sent
        self.writer.note(sent)

    async def sweep(self) -> None:
        if not self.alone and self.writer.pulse.unbroken(sweep.DEAD.total_seconds()):
            await in_thread(sweep.sweep, me=self.process)

    async def read_prices(self) -> None:
        self.prices = await in_thread(lambda: {price.model: price.rates() for price in Price.objects.all()})

    def rates(self, model: str) -> Rates:
        return self.prices.get(model, FREE)

    def keep(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """A task that nobody holds may be collected before it ends."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


async def read_spent(order: Order) -> Mapping[str, Spent]:
    return await in_thread(book.spent, {scope.name: order.day for scope in order.scopes})


async def every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """For ever; a failure is logged, and the next time is another try."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception as fault:
            logger.error("%s failed: %s", getattr(work, "__name__", work), fault)
