"""One task per process that writes the ledger: whatever has come in while the last transaction ran goes into the next one.

So a request pays for a share of a transaction, and a database that is away for a while delays the rows but loses none. Somebody waits for
a row to begin; nobody waits for one to end, so outcomes gather for a moment first.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError, connections

from inference.errors import InternalError, Unavailable
from tenants.ledger import book
from tenants.ledger.batch import Batch, Outcome
from tenants.limits.bounds import Spent
from tenants.models import Entry

AWAY = (OperationalError, InterfaceError)  # the database, not the record, is at fault: try again
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
MOST_UNWRITTEN = 10_000
GATHER_SECONDS = 0.02
LONGEST_GAP = 10.0
SECONDS_TO_CLOSE = 2.0

logger = logging.getLogger("tokenry.ledger")

OnSettled = Callable[[Sequence[Outcome], Mapping[str, Spent]], None]


@dataclass
class Pulse:
    """How long this process has said without a gap that it lives.

    Who could not reach the database for a while knows nothing of the others, who could not either: it must not call them dead.
    """

    since: float = math.inf
    last: float = -math.inf

    def beat(self, now: float) -> None:
        if now - self.last > LONGEST_GAP:
            self.since = now
        self.last = now

    def unbroken(self, seconds: float) -> bool:
        return self.last - self.since >= seconds


class Writer:
    """Rows are begun, noted and settled without waiting; `begin` gives what to wait for before anything of an answer is sent."""

    def __init__(self, process: str, on_settled: OnSettled, *, most_unwritten: int = MOST_UNWRITTEN) -> None:
        self.process = process
        self.on_settled = on_settled
        self.most_unwritten = most_unwritten
        self.batch = Batch()
        self.written: dict[str, asyncio.Future[None]] = {}  # by the id of a row that is on its way
        self.unsettled = 0  # outcomes that are not in the database yet
        self.due = False  # whether the outcomes have gathered for long enough
        self.wake = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")  # one thread, one connection, kept
        self.task: asyncio.Task[None] | None = None
        self.pulse = Pulse()

    def start(self) -> None:
        self.task = asyncio.create_task(self.run())

    def require_room(self) -> None:
        """For one more request; what has begun can always be settled. Raises Unavailable."""
        if len(self.written) + self.unsettled >= self.most_unwritten:
            raise Unavailable("The ledger cannot keep up.", code="overloaded", retry_after=1)

    def begin(self, entry: Entry) -> asyncio.Future[None]:
        """A row to be. The future is done when it is committed."""
        future = asyncio.get_running_loop().create_future()
        self.written[entry.id] = future
        self.batch.started.append(entry)
        self.stir()
        return future

    def settle(self, outcome: Outcome) -> None:
        self.idle.clear()
        self.unsettled += 1
        if not self.batch.outcomes:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.settle_now)
        self.batch.outcomes.append(outcome)

    def settle_now(self) -> None:
        self.due = True
        self.stir()

    def note(self, sent: Mapping[str, int]) -> None:
        """Say that the process lives, and how many tokens its open requests have sent."""
        self.batch.progress, self.batch.beat = {**self.batch.progress, **sent}, True
        self.stir()

    def stir(self) -> None:
        self.idle.clear()
        self.wake.set()

    async def run(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            batch, self.due = self.batch.take(outcomes=self.due), False
            if batch:
                await self.write(batch)
            if not self.batch:
                self.idle.set()

    async def write(self, batch: Batch) -> None:
        """Until it is written, however long the database is away."""
        try:
            spent = await self.insist(batch)
        except Exception:
            logger.exception("a batch of the ledger was refused; writing its records one by one")
            await self.write_each(batch)
        else:
            if batch.beat:
                self.pulse.beat(time.monotonic())
            self.tell_written(batch.started)
            self.tell_settled(batch.outcomes, spent)

    async def insist(self, batch: Batch) -> Mapping[str, Spent]:
        pauses = growing_pauses()
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self.thread, self.commit, batch)
            except AWAY as fault:
                pause = next(pauses)
                logger.warning("the ledger cannot be written, trying again in %.2f s: %s", pause, str(fault).strip())
                await asyncio.sleep(pause)

    def commit(self, batch: Batch) -> Mapping[str, Spent]:
        try:
            return book.write(batch, self.process)
        except AWAY:
            connections.close_all()  # the next try begins with a new connection
            raise

    async def write_each(self, batch: Batch) -> None:
        for single in batch.one_by_one():
            try:
                spent = await self.insist(single)
            except Exception:
                logger.exception("the ledger cannot hold %s", single)
                self.tell_written(single.started, InternalError())
                self.tell_settled(single.outcomes, {})
            else:
                self.tell_written(single.started)
                self.tell_settled(single.outcomes, spent)

    def tell_written(self, entries: Iterable[Entry], fault: Exception | None = None) -> None:
        for entry in entries:
            future = self.written.pop(entry.id)
            if future.cancelled():
                continue
            if fault is None:
                future.set_result(None)
            else:
                future.set_exception(fault)
                future.exception()  # nobody need be waiting

    def tell_settled(self, outcomes: Sequence[Outcome], spent: Mapping[str, Spent]) -> None:
        self.unsettled -= len(outcomes)
        if outcomes:
            self.on_settled(outcomes, spent)

    async def flush(self) -> None:
        """Until nothing waits any more."""
        self.settle_now()
        await self.idle.wait()

    async def stop(self, seconds: float) -> bool:
        """Write what is left, for so long at most. Returns whether all of it was written."""
        try:
            await asyncio.wait_for(self.flush(), seconds)
        except TimeoutError:
            logger.error("stopped with %d rows and %d outcomes unwritten; a sweep will settle them", len(self.written), self.unsettled)
        complete = self.idle.is_set()
        if self.task is not None:
            self.task.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(self.thread, connections.close_all), SECONDS_TO_CLOSE)
        self.thread.shutdown(wait=False)
        return complete


def growing_pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, LONGEST_PAUSE)
