"""The node's side of the engine: one object, asyncio, no torch. It starts the process, keeps it alive, and hands requests their outputs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any

from inference.engine import scripted, wire
from inference.engine.config import EngineConfig, EngineInfo
from inference.engine.mailbox import Mailbox
from inference.engine.process import EngineProcess
from inference.errors import BadRequest, Unavailable
from inference.protocol.engine import EngineOutput, EngineRequest

log = logging.getLogger(__name__)

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0
WATCH_S = 1.0


class StartError(RuntimeError):
    """The engine cannot start with this configuration; the text is for people."""


class EngineClient:
    """All methods are for the event loop that `start` ran in.

    A process that dies or falls silent with work outstanding is started again, with growing pauses. Its requests end with an error; new
    ones are refused as unavailable until it is back.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.info: EngineInfo | None = None
        self.restarts = 0
        self._open: dict[str, tuple[Mailbox, str]] = {}  # by request id: where its outputs go, and its tenant
        self._by_tenant: Counter[str] = Counter()
        self._stats: dict[str, float] = {}
        self._process: EngineProcess | None = None
        self._ready: asyncio.Future[EngineInfo] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._heard_at = 0.0
        self._backoff = FIRST_BACKOFF_S

    # ---- life

    async def start(self) -> EngineInfo:
        """Start the process and wait until it answers.

        Raises:
            StartError: it cannot start; the reason is the engine's own sentence.
        """
        info = await self._launch()
        self._keeper = asyncio.create_task(self._keep())
        return info

    async def stop(self) -> None:
        """End the process; what is outstanding ends with an error."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._process is not None:
            await self._process.stop()
        self._fail_all("The engine was stopped.")

    @property
    def healthy(self) -> bool:
        """The process is loaded and was heard of in time."""
        ready = self._ready is not None and self._ready.done() and self._ready.exception() is None
        return ready and not self._gone.is_set() and not self._stuck()

    def stats(self) -> dict[str, float]:
        """The engine's counts under vLLM's metric names where it has one, as of a fraction of a second ago."""
        return {**self._stats, "tokenry:engine_restarts_total": self.restarts, "tokenry:requests_open": len(self._open)}

    # ---- requests

    def generate(self, request: EngineRequest) -> Outputs:
        """Hand the request to the engine; iterate over what comes. Leaving the iteration early aborts the request.

        Raises:
            Unavailable: the engine is full, or not there at the moment.
            BadRequest: the request's script is not one, or this engine takes none.
        """
        self._admit(request)
        request.arrived = time.monotonic()
        if not self._open:
            self._heard_at = time.monotonic()  # silence counts from where there is work: an idle process owes nothing
        frame = wire.frame(wire.Add([request]))
        mailbox = Mailbox()
        self._open[request.id] = (mailbox, request.tenant)
        self._by_tenant[request.tenant] += 1
        self._send(frame)
        return Outputs(self, request.id, mailbox)

    def abort(self, ids: Iterable[str]) -> None:
        """End these requests; each gets its final output. Unknown ids are ignored."""
        known = [request_id for request_id in ids if request_id in self._open]
        if known:
            self._send(wire.frame(wire.Abort(known)))

    def discard(self, request_id: str) -> None:
        """Abort a request whose outputs nobody reads any more."""
        self.abort([request_id])
        self._close(request_id)

    def _admit(self, request: EngineRequest) -> None:
        if not self.healthy:
            raise Unavailable("The engine is starting; try again shortly.", retry_after=max(1.0, self._backoff))
        if len(self._open) >= self.config.capacity:
            raise Unavailable("The engine's queue is full; try again shortly.")
        if self._by_tenant[request.tenant] >= self.config.tenant_capacity:
            raise Unavailable("Too many requests of this tenant are waiting; try again shortly.")
        if request.id in self._open:
            raise BadRequest(f"A request with the id {request.id} is running already.", "request_id")
        if request.sampling.script is not None:
            self._check_script(request)

    def _check_script(self, request: EngineRequest) -> None:
        if self.config.engine != "scripted":
            raise BadRequest("This engine runs a model; only the scripted engine takes a script.", scripted.PARAM)
        scripted.parse(request.sampling.script, request.sampling.n)

    def _close(self, request_id: str) -> None:
        mailbox_and_tenant = self._open.pop(request_id, None)
        if mailbox_and_tenant is not None:
            tenant = mailbox_and_tenant[1]
            self._by_tenant[tenant] -= 1
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]

    def _send(self, frame: bytes) -> None:
        if self._process is not None:
            self._process.send(frame)

    # ---- the process

    async def _launch(self) -> EngineInfo:
        self._gone.clear()
        self._ready = asyncio.get_running_loop().create_future()
        self._process = EngineProcess(self._on_message, self._gone.set)
        await self._process.start(self.config)
        gone = asyncio.ensure_future(self._gone.wait())
        either: set[asyncio.Future[Any]] = {self._ready, gone}
        await asyncio.wait(either, timeout=self.config.start_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not self._ready.done():
            self._process.kill()
            raise StartError("The engine's process ended, or took too long, before it was ready.")
        self.info = self._ready.result()
        return self.info

    def _on_message(self, message: wire.FromEngine) -> None:
        self._heard_at = time.monotonic()
        if isinstance(message, wire.News):
            self._on_news(message)
        elif self._ready is not None and not self._ready.done():
            if isinstance(message, wire.Ready):
                self._ready.set_result(message.info)
            else:
                self._ready.set_exception(StartError(message.reason))

    def _on_news(self, news: wire.News) -> None:
        self._backoff = FIRST_BACKOFF_S
        if news.stats is not None:
            self._stats = news.stats
        for output in news.outputs:
            opened = self._open.get(output.id)
            if opened is None:
                continue
            if output.finished:
                self._close(output.id)
            opened[0].put(output)

    async def _keep(self) -> None:
        """Restart the process whenever it dies or sticks, for as long as the client lives."""
        while True:
            await self._until_down()
            self._fail_all("The engine's process ended.")
            while not await self._restarted():
                self._backoff = min(self._backoff * 2, LONGEST_BACKOFF_S)

    async def _until_down(self) -> None:
        while not self._gone.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), WATCH_S)
            if self._stuck() and self._process is not None:
                log.error("The engine has been silent for %.0f s with work outstanding; restarting it", self.config.watchdog_s)
                self._process.kill()
                await self._gone.wait()

    def _stuck(self) -> bool:
        return bool(self._open) and time.monotonic() - self._heard_at > self.config.watchdog_s

    async def _restarted(self) -> bool:
        self.restarts += 1
        log.warning("Restarting the engine in %.1f s", self._backoff)
        await asyncio.sleep(self._backoff)
        if self._process is not None:
            await self._process.stop()
        try:
            await self._launch()
        except (StartError, OSError) as exc:
            log.error("The engine did not come back: %s", exc)
            return False
        return True

    def _fail_all(self, error: str) -> None:
        for request_id, (mailbox, _) in list(self._open.items()):
            self._close(request_id)
            mailbox.put(EngineOutput(id=request_id, choices=[], finished=True, error=error))


class Outputs(AsyncIterator[EngineOutput]):
    """The outputs of one request, the last of them `finished`. Closing it early, or dropping it, aborts the request.

    A cancelled wait for the next output loses nothing and ends nothing, so it may be given a timeout.
    """

    def __init__(self, client: EngineClient, request_id: str, mailbox: Mailbox) -> None:
        self._client = client
        self._id = request_id
        self._mailbox = mailbox
        self._over = False
        self._first: EngineOutput | None = None

    async def accepted(self) -> None:
        """Wait until a request with a constraint is let in: before that nobody knows whether the constraint can be compiled.

        Raises:
            BadRequest: it cannot.
        """
        output = await self._mailbox.take()
        self._over = output.finished
        if output.refused is not None:
            raise BadRequest(f"structured_outputs cannot be compiled: {output.refused}", "structured_outputs")
        if output.finished:
            self._first = output

    def __aiter__(self) -> Outputs:
        return self

    async def __anext__(self) -> EngineOutput:
        if self._first is not None:
            output, self._first = self._first, None
            return output
        if self._over:
            raise StopAsyncIteration
        output = await self._mailbox.take()
        self._over = output.finished
        return output

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._client.discard(self._id)

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Outputs:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
