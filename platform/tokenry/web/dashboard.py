"""The admin's first page: the day so far, and what needs somebody. A tenant's people see their tenants, platform staff all of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.timesince import timeuntil

from tenants import overview, selectors
from tenants.models import Key
from tenants.overview import Line, Sums
from tokenry.application import platform_state
from tokenry.fleet.node import Node
from tokenry.web.charts import bars

DAYS = 14


@dataclass(frozen=True)
class Matter:
    """Something that needs attention, in a sentence, and where to see to it. `bad`: it hurts already."""

    text: str
    url: str
    bad: bool = False


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """unfold's DASHBOARD_CALLBACK."""
    tenant_ids = list(selectors.tenants_of(request.user).values_list("pk", flat=True))
    daily = overview.daily(tenant_ids, DAYS)
    lines = overview.lines(tenant_ids, overview.today())
    served = platform_state().fleet.served if request.user.is_superuser else []
    nodes = list(dict.fromkeys(node for _, behind in served for node in behind))
    return context | {
        "title": "Overview",
        "today": daily[-1][1], "yesterday": daily[-2][1], "slowest": slowest(lines), "lines": lines,
        "charts": {"requests": requests_chart(daily), "tokens": tokens_chart(daily), "tenants": tenants_chart(lines)},
        "used": any(sums.requests for _, sums in daily),
        "nodes": [(node, ", ".join(model.names)) for model, behind in served for node in behind],
        "matters": matters(tenant_ids, nodes),
    }


def matters(tenant_ids: Collection[int], nodes: Collection[Node]) -> list[Matter]:
    """What hurts already comes first."""
    found = [*down(nodes), *spent(tenant_ids), *expiring(tenant_ids)]
    return sorted(found, key=lambda matter: not matter.bad)


def down(nodes: Collection[Node]) -> list[Matter]:
    url = reverse("admin:index") + "#nodes"
    return [Matter(f"Node {node.url} is down: requests go to the others, or are refused where there are none.", url, bad=True)
            for node in nodes if not node.healthy]


def spent(tenant_ids: Collection[int]) -> list[Matter]:
    near = [budget for budget in overview.budgets(tenant_ids) if budget.near]
    return [Matter(f"{budget.tenant}, {budget.whose}: {budget.percent} % of {budget.what} is used.", "/usage/", bad=budget.share >= 1)
            for budget in near]


def expiring(tenant_ids: Collection[int]) -> list[Matter]:
    return [Matter(f"Key {key.name} of {key.tenant} expires in {timeuntil(key.expires_at)}.", key_page(key))
            for key in overview.expiring_keys(tenant_ids)]


def key_page(key: Key) -> str:
    return reverse("admin:tenants_key_change", args=(key.pk,))


def slowest(lines: Collection[Line]) -> Line | None:
    """The one whose users wait longest."""
    return max((line for line in lines if line.most is not None), key=lambda line: line.most or 0.0, default=None)


def requests_chart(daily: list[tuple[date, Sums]]) -> dict[str, Any]:
    good = [sums.requests - sums.failed for _, sums in daily]
    return bars([day for day, _ in daily], {"answered": good, "failed": [sums.failed for _, sums in daily]})


def tokens_chart(daily: list[tuple[date, Sums]]) -> dict[str, Any]:
    prompts, made = [sums.prompt_tokens for _, sums in daily], [sums.completion_tokens for _, sums in daily]
    return bars([day for day, _ in daily], {"in prompts": prompts, "generated": made})


def tenants_chart(lines: list[Line]) -> dict[str, Any]:
    """Today's tokens, a bar for each tenant and a colour for each model."""
    tenants = list(dict.fromkeys(line.tenant for line in lines))
    models = sorted({line.model for line in lines})
    found = {(line.tenant, line.model): line.sums.tokens for line in lines}
    sets = [{"label": model, "data": [found.get((tenant, model), 0) for tenant in tenants]} for model in models]
    return {"labels": tenants, "datasets": sets}
