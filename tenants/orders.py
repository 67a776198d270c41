"""What a request asks of the limits, before it has begun: its prompt, and an estimate of its output."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tenants.caller import Caller
from tenants.entry_ids import new_id
from tenants.ledger.book import key_scope, tenant_scope
from tenants.limits import Order, Scope
from tenants.limits.verdict import too_large
from tenants.money import Rates

OUTPUT_ESTIMATE = 1024  # tokens, where a request names no maximum: most answers are shorter, and a full context would block a small limit


def make_order(caller: Caller, rates: Rates, prompt: int, max_tokens: int | None, choices: int) -> Order:
    """The estimate never asks for more than a whole limit: a request that fits must not be refused for what it will hardly use.

    Raises:
        RateLimited: the prompt alone is more than a minute's tokens.
    """
    scopes = tuple(scope for scope in scopes_of(caller) if scope.bounds.any)
    for scope in scopes:
        if scope.bounds.tokens_per_minute is not None and prompt > scope.bounds.tokens_per_minute:
            raise too_large(scope, prompt)
    wanted = prompt + choices * (OUTPUT_ESTIMATE if max_tokens is None else max_tokens)
    tokens = within(wanted, prompt, [bound for scope in scopes for bound in scope.bounds.token_bounds()])
    cost = within(
        rates.cost(prompt=prompt, completion=tokens - prompt), rates.cost(prompt=prompt, completion=0),
        [bound for scope in scopes for bound in scope.bounds.cost_bounds()])
    created = datetime.now(UTC)
    return Order(new_id(created), caller.tenant_id, scopes, tokens, cost, created)


def within(wanted: int, least: int, bounds: Sequence[int]) -> int:
    return max(least, min([wanted, *bounds]))


def scopes_of(caller: Caller) -> tuple[Scope, Scope]:
    return (
        Scope(key_scope(caller.key_id), caller.key_bounds),
        Scope(tenant_scope(caller.tenant_id), caller.tenant_bounds),
    )
