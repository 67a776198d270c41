"""What the counters said, and what that is to the caller: an exception, or the headers of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference.errors import QuotaExceeded, RateLimited
from tenants.limits.bounds import Order, Scope

SLOT_MILLISECONDS = 1000  # nobody knows when a running request ends; asking again this often costs nothing
RATES = {"requests": "requests per minute", "tokens": "tokens per minute", "concurrency": "requests at once"}
BUDGETS = {
    "tokens_per_day": "tokens per day", "tokens_per_month": "tokens per month",
    "cost_per_day": "cost per day", "cost_per_month": "cost per month",
}


@dataclass(frozen=True)
class Refusal:
    """One limit that the order does not fit into: the scope's place in the order, the limit, and the milliseconds until it would fit."""

    scope: int
    limit: str
    wait: int = 0


@dataclass(frozen=True)
class Reading:
    """A scope's last minute after the decision."""

    requests: int
    tokens: int
    reset: int  # milliseconds until nothing of it counts any more


@dataclass(frozen=True)
class Verdict:
    """`stale`: a budget cannot be judged before the counters are told what the ledger has settled; then nothing was decided."""

    tick: int
    refusals: Sequence[Refusal] = ()
    readings: Sequence[Reading] = ()
    stale: bool = False


def refuse(order: Order, verdict: Verdict) -> None:
    """Raises what the refusals come to; the longest wait decides, because the next call must pass.

    Raises:
        QuotaExceeded: a budget is spent; no wait of seconds helps.
        RateLimited: with the seconds to wait.
    """
    headers = rate_headers(order.scopes, verdict.readings)
    error: QuotaExceeded | RateLimited
    spent = next((refusal for refusal in verdict.refusals if refusal.limit in BUDGETS), None)
    if spent is not None:
        error = QuotaExceeded(f"The budget of this {order.scopes[spent.scope].noun} is used up: {BUDGETS[spent.limit]}.")
    elif verdict.refusals:
        error = too_fast(order, max(verdict.refusals, key=lambda refusal: refusal.wait))
    else:
        return
    error.headers |= headers
    raise error


def too_fast(order: Order, refusal: Refusal) -> RateLimited:
    scope, wait = order.scopes[refusal.scope], refusal.wait / 1000
    bound = scope.bounds.concurrency if refusal.limit == "concurrency" else getattr(scope.bounds, f"{refusal.limit}_per_minute")
    message = f"This {scope.noun} is limited to {bound} {RATES[refusal.limit]}. Try again in {wait:g} s."
    return RateLimited(message, code=refusal.limit, retry_after=wait)


def too_large(scope: Scope, tokens: int) -> RateLimited:
    """A prompt that is longer than a whole minute's tokens: no wait helps, so none is promised."""
    bound = scope.bounds.tokens_per_minute
    error = RateLimited(
        f"The prompt has {tokens} tokens, and this {scope.noun} is limited to {bound} tokens per minute: it can never pass.",
        code="tokens", retry_after=1,
    )
    error.headers = {"x-should-retry": "false"}
    return error


def rate_headers(scopes: Sequence[Scope], readings: Sequence[Reading]) -> dict[str, str]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}` of the scope that has the least left, where a limit applies."""
    headers: dict[str, str] = {}
    for what in ("requests", "tokens"):
        left = [
            (max(0, bound - getattr(reading, what)), bound, reading.reset)
            for scope, reading in zip(scopes, readings, strict=False)
            if (bound := getattr(scope.bounds, f"{what}_per_minute")) is not None
        ]
        if left:
            remaining, bound, reset = min(left)
            headers |= {
                f"x-ratelimit-limit-{what}": str(bound),
                f"x-ratelimit-remaining-{what}": str(remaining),
                f"x-ratelimit-reset-{what}": f"{reset / 1000:g}s",
            }
    return headers
