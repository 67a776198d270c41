"""Between the node's HTTP side and the engine's process: token ids in, token ids out.

The engine knows no tokenizer, no message and no tenant's name: a tenant is an opaque string that its scheduler shares steps by.
Values here are full: nothing is unset in the sense of "some default applies", and None means "off" or "none given".
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Row = list[tuple[int, float, int | None]]
"""Candidates of one token: (id, logprob, rank); the sampled or prompt token first, then by rank. Logprobs may be NaN or -inf here."""


class Constraint(Struct, kw_only=True, frozen=True):
    """What the output must be. `text` is a JSON schema, a regular expression, a grammar in EBNF or a structural tag in JSON."""

    kind: Literal["json_schema", "json_object", "regex", "grammar", "structural_tag"]
    text: str = ""
    any_whitespace: bool = True  # between the parts of a JSON text
    after_token_ids: tuple[int, ...] = ()  # it binds once one of these has come: the reasoning's end; none: from the first token on


class Sampling(Struct, kw_only=True, frozen=True):
    """What the sampler honours exactly. `temperature` 0 is greedy. top_k 0 is off."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None  # choice i of n draws from seed + i
    max_tokens: int = 16
    min_tokens: int = 0
    eos_token_ids: tuple[int, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # candidates per token; 0 the sampled one only; -1 the whole vocabulary
    prompt_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] | None = None  # these instead of the best ones
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    constraint: Constraint | None = None
    script: Any = None  # the scripted engine's


class EngineRequest(Struct, kw_only=True):
    """`id` is unique in the engine; the caller's own id is a matter of the node's HTTP side."""

    id: str
    token_ids: list[int]
    sampling: Sampling
    tenant: str = ""
    weight: float = 1.0
    priority: int = 0
    cache_salt: str | None = None
    arrived: float | None = None  # seconds on the clock of `time.monotonic`; it may have waited for a step to end before it is read


class ChoiceOutput(Struct, kw_only=True):
    """What is new of one choice. `rows` has one row per token id, or is None where no logprobs were asked for."""

    index: int
    token_ids: list[int]
    rows: list[Row] | None = None
    finish_reason: str | None = None  # stop | length | abort | error
    stop_reason: int | str | None = None  # the stop token that matched; None for EOS, length, abort


class EngineOutput(Struct, kw_only=True):
    """One step's news of one request. The last output of a request has `finished`; it is always delivered.

    A request with a constraint gets an output without news first, once the constraint is compiled, or one that says why it is refused.
    """

    id: str
    choices: list[ChoiceOutput]
    finished: bool = False
    prompt_rows: list[Row | None] | None = None  # once, with the first output; entry 0 is None
    cached_tokens: int = 0
    error: str | None = None  # set when the request failed; choices then end with finish_reason "error"
    refused: str | None = None  # set when its constraint cannot be compiled; nothing was generated
