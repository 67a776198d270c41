"""The step: schedule, run, deliver. Knows neither processes nor sockets, nor whether a model or a script answers."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from inference.engine import metrics
from inference.engine.histograms import Histograms
from inference.engine.request import Request, Sampled, Sequence
from inference.engine.scheduler import Failed, Plan, Scheduler
from inference.protocol.engine import ChoiceOutput, Constraint, EngineOutput, EngineRequest

if TYPE_CHECKING:
    from inference.engine.constraints import Constraints

log = logging.getLogger(__name__)

HOPELESS = 8  # failed steps in a row
DOOR_S = 0.002  # between two looks at what is being compiled
Results = list[tuple[Sequence, Sampled]]


class Executor(Protocol):
    """The lowest seam: a model and its sampler, or a script in their place."""

    phases: dict[str, float]  # seconds since the start, by phase of a step

    def run(self, plan: Plan) -> Results:
        """Run the step; what it gives each sequence whose ids are all computed then."""

    def due_in(self, running: Iterable[Sequence]) -> float:
        """Seconds until a step can give any of these anything."""


class Engine:
    """`strict`: a step that fails raises, instead of ending its requests; for trying out a model."""

    def __init__(
        self, executor: Executor, scheduler: Scheduler, *, constraints: Constraints | None = None, strict: bool = False
    ) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self.constraints = constraints
        self.strict = strict
        self.requests: dict[str, Request] = {}
        self.counters: Counter[str] = Counter()
        self.histograms = Histograms(scheduler.limits.max_len)
        self._failures = 0  # steps in a row
        self._final: list[EngineOutput] = []  # outputs that come of no step: aborts, refusals
        self._at_door: dict[str, Future[Any]] = {}  # by request id: the grammar that the request waits for

    # ---- what comes in

    def add(self, wire: EngineRequest) -> None:
        """Queue a request. Whatever is wrong with it ends in an output, never in an exception."""
        try:
            if wire.id in self.requests:
                raise ValueError(f"A request with the id {wire.id} is in the engine already.")
            request = Request(wire, time.monotonic() if wire.arrived is None else wire.arrived)
            if wire.sampling.constraint is None:
                self.scheduler.add(request)
            else:
                self._ask(request, wire.sampling.constraint)
        except Exception as exc:
            self.refuse([wire.id], str(exc))
            return
        self.requests[wire.id] = request
        self.counters["prompt_tokens"] += request.prompt_len

    def refuse(self, ids: list[str], reason: str) -> None:
        """Answer requests that cannot be run."""
        self._final += [EngineOutput(id=request_id, choices=[], finished=True, error=reason) for request_id in ids]

    def abort(self, ids: list[str]) -> None:
        """End these requests now; ids that are not here are ignored."""
        for request_id in ids:
            if request_id in self.requests:
                self._final.append(self._end(self.requests[request_id], "abort"))

    # ---- the step

    @property
    def busy(self) -> bool:
        return bool(self.requests or self._final)

    def due_in(self) -> float:
        """Seconds for which a step would give nothing."""
        scheduler = self.scheduler
        if self._final or (scheduler.waiting and scheduler.running < scheduler.limits.max_rows):
            return 0.0
        if self._at_door and not scheduler.running:
            return DOOR_S
        return self.executor.due_in(scheduler.running_sequences())

    def step(self) -> list[EngineOutput]:
        """Run one step and return its news.

        A step that fails ends the requests that it concerns. When one fails after the other, whatever is asked, then memory or device is
        past use, and the exception is raised: only another process can go on.
        """
        self._open_door()
        outputs, self._final = self._final, []
        try:
            plan = self.scheduler.schedule(time.monotonic())
            outputs += self._run(plan) if plan else []
        except Exception as exc:
            self._failures += 1
            if self.strict or self._failures >= HOPELESS:
                raise
            outputs += self._fail(exc)
        else:
            self._failures = 0
        return outputs

    def stats(self) -> dict[str, float]:
        """Counts since the start and gauges of now, by metric name."""
        return metrics.of_engine(self)

    # ---- the door: requests whose constraint is being compiled

    def _ask(self, request: Request, constraint: Constraint) -> None:
        if self.constraints is None:
            raise ValueError("This engine knows no constraints.")
        self._at_door[request.id] = self.constraints.ask(constraint)

    def _open_door(self) -> None:
        """Let in whoever's grammar is there, in the order of arrival; turn away whoever's cannot be."""
        for request_id in [request_id for request_id, grammar in self._at_door.items() if grammar.done()]:
            grammar, request = self._at_door.pop(request_id), self.requests[request_id]
            try:
                if self.constraints is not None:
                    self.constraints.guide(request, grammar.result())
                self.scheduler.add(request)
            except Exception as exc:
                del self.requests[request_id]
                self._final.append(EngineOutput(id=request_id, choices=[], finished=True, refused=str(exc)))
            else:
                self._final.append(EngineOutput(id=request_id, choices=[]))

    def _run(self, plan: Plan) -> list[EngineOutput]:
        now = time.monotonic()
        for work in plan.prefill:
            self.histograms.begun(work.seq.request, now)
        try:
            results = self.executor.run(plan)
        except Exception as exc:
            raise Failed(plan.sequences, exc) from exc
        self._advance(plan)
        self.scheduler.settle(plan.tokens_by_tenant())
        return self._deliver(results)

    def _fail(self, exc: Exception) -> list[EngineOutput]:
        """End the requests that a step failed for. Where nobody knows which these are, all that have begun, or else all that wait."""
        if isinstance(exc, Failed):
            failed = {seq.request.id: seq.request for seq in exc.sequences}
        else:
            begun = {name: request for name, request in self.requests.items() if request.cached_tokens is not None}
            failed = begun or dict(self.requests)
        log.error("A step failed, and with it %d requests", len(failed), exc_info=exc)
        return [self._end(request, "error", f"The engine failed: {exc}") for request in failed.values()]

    def _advance(self, plan: Plan) -> None:
        """Note what is computed now, and let it be shared."""
        self.counters["steps"] += 1
        self.counters["rows"] += len(plan.decode) + len(plan.prefill)
        for seq in plan.decode:
            seq.computed += 1
        for work in plan.prefill:
            work.seq.computed += work.count
            self.scheduler.memory.keep(work.seq)
            if work.seq.computed >= work.seq.request.prompt_len:
                self.scheduler.release_siblings(work.seq.request)

    def _deliver(self, results: Results) -> list[EngineOutput]:
        """One output per request that has news; a request with a choice that failed ends in its error alone."""
        news: dict[Request, list[ChoiceOutput]] = {}
        errors: dict[Request, str] = {}
        now = time.monotonic()
        for seq, sampled in results:
            if sampled.error is not None:
                errors[seq.request] = sampled.error
            elif choice := self._take(seq, sampled, now):
                news.setdefault(seq.request, []).append(choice)
        for seq, _ in reversed(results):  # the last rows first: then no other has to take their place
            if seq.finished:
                self.scheduler.finish(seq)
        failed = [self._end(request, "error", error) for request, error in errors.items()]
        return failed + [self._output(request, choices) for request, choices in news.items() if request not in errors]

    def _take(self, seq: Sequence, sampled: Sampled, now: float) -> ChoiceOutput | None:
        """Append what was sampled up to what ends the choice; None when there is nothing to say."""
        if not sampled.token_ids:
            seq.computed -= 1  # nothing came: the last id is run again
        start = len(seq.ids)
        for token in sampled.token_ids:
            if seq.finished:
                break
            seq.append(token, self.scheduler.limits.max_len)
        if sampled.finish_reason is not None and not seq.finished:
            seq.finish_reason, seq.stop_reason = sampled.finish_reason, sampled.stop_reason
        taken = seq.ids[start:]
        self.counters["generation_tokens"] += len(taken)
        if taken:
            self.histograms.spoke(seq, now)
        elif not seq.finished:
            return None
        rows = None if sampled.rows is None else sampled.rows[: len(taken)]
        return ChoiceOutput(
            index=seq.index, token_ids=taken, rows=rows, finish_reason=seq.finish_reason, stop_reason=seq.stop_reason
        )

    def _output(self, request: Request, choices: list[ChoiceOutput]) -> EngineOutput:
        output = EngineOutput(
            id=request.id, choices=choices, finished=request.finished, cached_tokens=request.cached_tokens or 0
        )
        if not request.prompt_rows_sent:
            output.prompt_rows, request.prompt_rows_sent = request.prompt_rows, True
        if output.finished:
            self._forget(request)
        return output

    def _end(self, request: Request, reason: str, error: str | None = None) -> EngineOutput:
        """End every choice that is still going."""
        going = [choice for choice in request.choices if not choice.finished]
        for choice in going:
            choice.finish_reason = reason
        for choice in request.choices:  # also one that ended in a step that failed afterwards
            self.scheduler.finish(choice)
        self._forget(request)
        choices = [ChoiceOutput(index=choice.index, token_ids=[], finish_reason=reason) for choice in going]
        return EngineOutput(id=request.id, choices=choices, finished=True, cached_tokens=request.cached_tokens or 0, error=error)

    def _forget(self, request: Request) -> None:
        del self.requests[request.id]
        self._at_door.pop(request.id, None)
        self.histograms.over(request, time.monotonic())
        for reason in {choice.finish_reason for choice in request.choices}:
            self.counters[f"finished_{reason}"] += 1
