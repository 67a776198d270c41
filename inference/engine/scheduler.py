"""Who runs next. Pure Python, no torch, no clock of its own.

Tenants share the engine by deficit round robin in tokens. After each step every tenant with work is credited its weight's share of the
tokens that the step ran, and debited what it ran itself; whoever has most credit is served first. A tenant that runs dry starts again
from zero. Rows are not held against others: when all are taken and a tenant with fewer than its share waits, the newest row of the tenant
most above its share gives way (its keys and values go to the prefix cache, what is not kept is computed again).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

from inference.engine.memory import Memory
from inference.engine.request import Request, Sequence
from inference.engine.tenant import Tenant

CREDIT_LIMIT = 16_384.0  # tokens; what is older is forgiven
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Limits:
    max_rows: int
    max_len: int
    chunk: int  # prompt tokens in a step
    chunk_idle: int  # where nobody decodes, or fewer than wait for their first token
    patience_s: float = PATIENCE_S


@dataclass
class Work:
    """Run `count` ids of the sequence from `seq.computed` on."""

    seq: Sequence
    count: int

    @property
    def positions(self) -> range:
        return range(self.seq.computed, self.seq.computed + self.count)

    @property
    def ids(self) -> list[int]:
        return self.seq.ids[self.positions.start : self.positions.stop]

    @property
    def completes(self) -> bool:
        """A token can be sampled after it."""
        return self.count == self.seq.pending


@dataclass
class Plan:
    """One step: every decoding row, and pieces of prompts."""

    decode: list[Sequence] = field(default_factory=list)
    prefill: list[Work] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.decode or self.prefill)

    @property
    def sequences(self) -> list[Sequence]:
        return self.decode + [work.seq for work in self.prefill]

    @property
    def sampling(self) -> list[Sequence]:
        """The sequences whose next token follows from this step."""
        return self.decode + [work.seq for work in self.prefill if work.completes]

    def tokens_by_tenant(self) -> dict[str, int]:
        """What each tenant is debited for the step."""
        tokens: dict[str, int] = {}
        for seq in self.decode:
            tokens[seq.request.tenant] = tokens.get(seq.request.tenant, 0) + 1
        for work in self.prefill:
            tokens[work.seq.request.tenant] = tokens.get(work.seq.request.tenant, 0) + work.count
        return tokens


class Failed(Exception):
    """A step cannot be run because of these sequences; its text and its cause say why."""

    def __init__(self, sequences: list[Sequence], cause: BaseException) -> None:
        super().__init__(str(cause))
        self.sequences = sequences


class concerning:
    """What raises in this block is the failure of that one sequence, unless it is known already whose it is."""

    def __init__(self, seq: Sequence) -> None:
        self.seq = seq

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(exc, Exception) and not isinstance(exc, Failed):
            raise Failed([self.seq], exc) from exc


class Scheduler:
    def __init__(self, limits: Limits, memory: Memory) -> None:
        self.limits = limits
        self.memory = memory
        self.tenants: dict[str, Tenant] = {}
        self.preemptions = 0
        self._arrivals = 0
        self._newcomer_ran = False
        self._planned: set[Sequence] = set()  # whose prompts are in the step that is being made: they do not give way any more

    # ---- what comes in and goes out

    def add(self, request: Request) -> None:
        """Queue the request's first choice; the others follow when its prompt is computed."""
        if not request.wire.weight > 0:
            raise ValueError(f"weight must be greater than 0, got {request.wire.weight}.")
        self._arrivals += 1
        request.order = self._arrivals
        tenant = self.tenants.setdefault(request.tenant, Tenant(request.tenant, self.limits.patience_s))
        tenant.weight = request.wire.weight
        tenant.push(request.choices[0])

    def release_siblings(self, request: Request) -> None:
        """The prompt is computed and cached: the other choices may start."""
        if request.siblings_released:
            return
        request.siblings_released = True
        for sibling in request.choices[1:]:
            self.tenants[request.tenant].push(sibling)

    def finish(self, seq: Sequence) -> None:
        """Forget a sequence that ended, wherever it is."""
        tenant = self.tenants.get(seq.request.tenant)
        if tenant is None:
            return
        if seq in tenant.running:
            self._stop(seq, tenant)
        else:
            tenant.take(seq)

    # ---- one step

    def schedule(self, now: float) -> Plan:
        """The next step's work. An empty plan means that nobody waits and nobody runs.

        Raises:
            Failed: the memory failed for one sequence. Once that one is finished, everybody else can be scheduled again.
        """
        self._drop_idle_tenants()
        self._planned.clear()
        ranked = self._ranked()
        newcomer = None if self._newcomer_ran else self._newcomer(ranked, now)
        self._newcomer_ran = newcomer is not None
        if newcomer:
            return Plan(prefill=[newcomer])
        plan = Plan(decode=self._decoding())
        budget = self._prompt_tokens(len(plan.decode))
        for seq in self._prefilling(ranked, now):
            if budget <= 0:
                break
            work = Work(seq, min(seq.pending, budget))
            plan.prefill.append(work)
            self._planned.add(seq)
            budget -= work.count
        plan.decode = [seq for seq in plan.decode if self._runs(seq) and seq not in self._planned]  # some may have given way
        return plan

    def settle(self, ran: dict[str, int]) -> None:
        """Credit and debit after a step; `ran` is tokens by tenant."""
        active = [tenant for tenant in self.tenants.values() if not tenant.idle or tenant.name in ran]
        total, weights = sum(ran.values()), sum(tenant.weight for tenant in active)
        for tenant in active:
            credit = tenant.credit + total * tenant.weight / weights - ran.get(tenant.name, 0)
            tenant.credit = max(-CREDIT_LIMIT, min(CREDIT_LIMIT, credit))

    # ---- counts

    @property
    def running(self) -> int:
        return sum(len(tenant.running) for tenant in self.tenants.values())

    @property
    def waiting(self) -> int:
        return sum(tenant.waiting for tenant in self.tenants.values())

    def running_sequences(self) -> Iterator[Sequence]:
        for tenant in self.tenants.values():
            yield from tenant.running

    # ---- inside a step

    def _runs(self, seq: Sequence) -> bool:
        return seq in self.tenants[seq.request.tenant].running

    def _ranked(self) -> list[Tenant]:
        """Most credit per weight first; ties stay in the order in which the tenants came."""
        return sorted(self.tenants.values(), key=lambda tenant: -tenant.credit / tenant.weight)

    def _prompt_tokens(self, decoding: int) -> int:
        """Of a step. A large piece delays the next token of those that decode, and brings the first one of those that wait nearer."""
        without_token = self.waiting + self.running - decoding
        return self.limits.chunk if 0 < decoding >= without_token else self.limits.chunk_idle

    def _drop_idle_tenants(self) -> None:
        for name in [name for name, tenant in self.tenants.items() if tenant.idle]:
            del self.tenants[name]

    def _newcomer(self, ranked: list[Tenant], now: float) -> Work | None:
        """A short prompt of a tenant that runs nothing yet and is owed, as a step of its own.

        So a light tenant's first token costs what it costs on an idle engine, whatever the others are doing. Never twice in a row, or a
        crowd of newcomers would hold up everybody's next token.
        """
        if len(ranked) < 2:
            return None
        for tenant in ranked:
            if tenant.running or not tenant.waiting or tenant.credit < 0:
                continue
            seq = tenant.head(now)
            if seq.pending <= self.limits.chunk and self._admit(seq, tenant):
                return Work(seq, min(seq.pending, self.limits.chunk))
        return None

    def _decoding(self) -> list[Sequence]:
        """All decoding rows, each with room for one more; where memory is short the newest give way."""
        for tenant in list(self.tenants.values()):
            for seq in list(tenant.running):
                with concerning(seq):
                    if seq.decoding and seq in tenant.running and self._make_room_to_grow(seq):
                        self.memory.grow(seq)
        return [seq for tenant in self.tenants.values() for seq in tenant.running if seq.decoding]

    def _make_room_to_grow(self, seq: Sequence) -> bool:
        """Preempt until it can grow; False when it had to give way itself."""
        while not self.memory.can_grow(seq):
            victim = self._victim() or seq
            self._preempt(victim)
            if victim is seq:
                return False
        return True

    def _prefilling(self, ranked: list[Tenant], now: float) -> Iterator[Sequence]:
        """Sequences with prompt left to compute, in the order of service; admits waiting ones as it goes."""
        for tenant in ranked:
            yield from [seq for seq in tenant.running if not seq.decoding]
        blocked: set[str] = set()
        while candidates := [tenant for tenant in self._ranked() if tenant.waiting and tenant.name not in blocked]:
            tenant = candidates[0]
            seq = tenant.head(now)
            if not self._admit(seq, tenant):
                blocked.add(tenant.name)
                continue
            yield seq

    def _admit(self, seq: Sequence, tenant: Tenant) -> bool:
        """Give a waiting sequence a row and memory, if need be those of a tenant above its share."""
        with concerning(seq):
            if self.memory.being_computed(seq):
                return False
            while self.running >= self.limits.max_rows or not self.memory.can_open(seq):
                victim = self._victim(for_tenant=tenant)
                if victim is None:
                    return False
                self._preempt(victim)
            seq.computed = self.memory.open(seq)
        tenant.take(seq)
        tenant.running[seq] = None
        if seq.request.cached_tokens is None:
            seq.request.cached_tokens = seq.computed
        return True

    def _share(self, tenant: Tenant) -> int:
        """Rows that are a tenant's own while others wait."""
        weights = sum(other.weight for other in self.tenants.values())
        return max(1, int(self.limits.max_rows * tenant.weight / weights))

    def _victim(self, for_tenant: Tenant | None = None) -> Sequence | None:
        """The newest row of the tenant most above its share; for a tenant's sake only while that tenant is below its own."""
        if for_tenant and len(for_tenant.running) >= self._share(for_tenant):
            return None
        others = [tenant for tenant in self.tenants.values() if tenant is not for_tenant and tenant.running]
        if for_tenant:
            others = [tenant for tenant in others if len(tenant.running) > self._share(tenant)]
        others.sort(key=lambda tenant: -len(tenant.running) / self._share(tenant))
        return next((seq for tenant in others for seq in reversed(tenant.running) if seq not in self._planned), None)

    def _preempt(self, seq: Sequence) -> None:
        self.preemptions += 1
        tenant = self.tenants[seq.request.tenant]
        with concerning(seq):
            self._stop(seq, tenant)
        seq.computed = 0
        tenant.push(seq)

    def _stop(self, seq: Sequence, tenant: Tenant) -> None:
        del tenant.running[seq]
        self.memory.close(seq)
