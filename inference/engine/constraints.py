"""Structured outputs in the engine: each constraint is compiled once, off the compute loop, while its requests wait at the door."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from inference.engine.grammar import Compiler, Guide, Uncompilable
from inference.engine.request import Request
from inference.engine.trial import Trial
from inference.protocol.engine import Constraint

if TYPE_CHECKING:
    import xgrammar

KEPT = 256  # compiled constraints
KEPT_BYTES = 256 << 20

Key = tuple[str, str, bool]


class Constraints:
    """Refusals are kept as grammars are: what cannot be compiled costs its time once."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self.compiled = 0
        self._trial = Trial(compiler.try_out)
        self._thread = ThreadPoolExecutor(1, "constraints")
        self._kept: OrderedDict[Key, Future[xgrammar.CompiledGrammar]] = OrderedDict()

    def ask(self, constraint: Constraint) -> Future[Any]:
        """The compiled grammar, now or later; its exception is Uncompilable."""
        key = (constraint.kind, constraint.text, constraint.any_whitespace)
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            self._kept[key] = self._thread.submit(self._compile, constraint)
            self._drop_oldest()
        return self._kept[key]

    def guide(self, request: Request, grammar: Any) -> None:
        """Give every choice of the request its own way through the grammar."""
        sampling = request.sampling
        if sampling.constraint is None:
            return
        stops = self.compiler.stop_ids((*sampling.eos_token_ids, *sampling.stop_token_ids))
        for choice in request.choices:
            choice.guide = Guide(grammar, sampling.constraint, stops)

    def _compile(self, constraint: Constraint) -> xgrammar.CompiledGrammar:
        refusal = self._trial.refusal(constraint)
        if refusal is not None:
            raise Uncompilable(refusal)
        self.compiled += 1
        return self.compiler.compile(constraint)

    def _drop_oldest(self) -> None:
        """Those that are being compiled stay: somebody waits for them."""
        for key in [key for key, future in self._kept.items() if future.done()]:
            if len(self._kept) <= KEPT and sum(map(size, self._kept.values())) <= KEPT_BYTES:
                return
            del self._kept[key]


def size(future: Future[Any]) -> int:
    return 0 if not future.done() or future.exception() is not None else int(future.result().memory_size_bytes)
