"""One request and its choices as the engine sees them: ids, state, generator. No torch."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from inference.protocol.engine import EngineRequest, Row, Sampling


@dataclass(eq=False)
class Sequence:
    """One choice of a request: the unit that is scheduled, holds keys and values, and is sampled.

    `ids` is the prompt and what was generated; `computed` of them have their keys and values in memory.
    """

    request: Request
    index: int
    ids: list[int]
    computed: int = 0
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    place: Any = None  # where the KV store keeps it; the store's own
    script: Any = None  # where the scripted engine stands with it
    guide: Any = None  # its way through the grammar that its output is held to
    spoke_at: float | None = None  # when its latest tokens came

    @cached_property
    def rng(self) -> random.Random:
        """Its own generator, so that neither batch mates nor other choices change what a seed gives; on the host, so no device does."""
        seed = self.request.sampling.seed
        return random.Random() if seed is None else random.Random((seed + self.index) % (1 << 64))

    @property
    def sampling(self) -> Sampling:
        return self.request.sampling

    @property
    def generated(self) -> int:
        return len(self.ids) - self.request.prompt_len

    @property
    def pending(self) -> int:
        """Ids that must still be run before the next token can be sampled: 1 while decoding."""
        return len(self.ids) - self.computed

    @property
    def decoding(self) -> bool:
        return self.computed >= self.request.prompt_len and self.pending == 1

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def constrained(self) -> bool:
        """A grammar has a say in the next token."""
        return self.guide is not None and self.guide.binds

    @cached_property
    def counts(self) -> Counter[int]:
        """How often each token was generated; kept only for a request with penalties, from its first question on."""
        return Counter(self.ids[self.request.prompt_len :])

    def append(self, token: int, max_len: int) -> None:
        """Take the next token, and settle whether it ends the choice.

        EOS and stop tokens count from `min_tokens` on. EOS leaves `stop_reason` None, also when it is listed as a stop token.
        """
        self.ids.append(token)
        if "counts" in self.__dict__:
            self.counts[token] += 1
        sampling = self.sampling
        if self.generated >= sampling.min_tokens:
            if token in sampling.eos_token_ids and not sampling.ignore_eos:
                self.finish_reason = "stop"
                return
            if token in sampling.stop_token_ids:
                self.finish_reason, self.stop_reason = "stop", token
                return
        if self.generated >= sampling.max_tokens or len(self.ids) >= max_len:
            self.finish_reason = "length"


@dataclass(eq=False)
class Request:
    """A request in the engine. The first choice computes the prompt; the others follow when it is done and find it in the prefix cache."""

    wire: EngineRequest
    arrived: float = field(default_factory=time.monotonic)
    begun_at: float | None = None  # when a step first worked on it
    order: int = 0  # arrival number, given by the scheduler
    cached_tokens: int | None = None  # of the first choice; None until it is opened
    prompt_rows: list[Row | None] | None = None  # filled while the prompt is computed, if asked for
    prompt_rows_sent: bool = False
    siblings_released: bool = False

    def __post_init__(self) -> None:
        self.choices = [Sequence(self, index, list(self.wire.token_ids)) for index in range(self.sampling.n)]
        if self.sampling.prompt_logprobs is not None:
            self.prompt_rows = [None]

    @property
    def id(self) -> str:
        return self.wire.id

    @property
    def sampling(self) -> Sampling:
        return self.wire.sampling

    @property
    def tenant(self) -> str:
        return self.wire.tenant

    @cached_property
    def prompt_ids(self) -> frozenset[int]:
        return frozenset(self.wire.token_ids)

    @property
    def prompt_len(self) -> int:
        return len(self.wire.token_ids)

    @property
    def finished(self) -> bool:
        return all(choice.finished for choice in self.choices)


@dataclass
class Sampled:
    """What a step gave one choice: usually one token; the scripted engine may give none, or several, or an end."""

    token_ids: list[int]
    rows: list[Row] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None
