"""Usage of one tenant, to be looked at: by day, key and model, with what is left of the budgets; and all of it as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect
from django.views.generic import View

from tenants import overview, selectors, usage
from tenants.models import Key, Tenant
from tenants.usage import Filter, Group, Usage
from tokenry.web.charts import bars
from tokenry.web.views import Page

PERIODS = (7, 30, 90)
LATEST = 25


@dataclass(frozen=True)
class Question:
    """What the page's form asks for."""

    tenant: Tenant
    days: int
    only: Filter


def asked(user: Any, query: QueryDict) -> Question | None:
    """Without a tenant in the query, the first that the user is a member of. None where there is none at all.

    Raises:
        Http404: another tenant, or none.
    """
    tenants = selectors.tenants_of(user)
    wanted = query.get("tenant", "")
    if wanted:
        tenant = tenants.filter(pk=int(wanted)).first() if wanted.isdecimal() else None
        if tenant is None:
            raise Http404
    else:
        tenant = tenants.filter(pk__in=selectors.roles_of(user)).first() or tenants.first()
    if tenant is None:
        return None
    days = next((period for period in PERIODS if str(period) == query.get("days")), 30)
    since = overview.today() - timedelta(days=days - 1)
    return Question(tenant, days, Filter(since=since, key=query.get("key") or None, model=query.get("model") or None))


class UsagePage(Page):
    name = "usage"
    template_name = "web/usage.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        question = asked(self.request.user, self.request.GET)
        return context if question is None else context | answer(question, self.request)


def answer(question: Question, request: HttpRequest) -> dict[str, Any]:
    tenant, only = question.tenant, question.only
    keys = {key.public_id: str(key) for key in Key.objects.filter(tenant=tenant)}
    (total,) = usage.summed(tenant_id=tenant.pk, by=(), only=only).rows
    by_day = everything(tenant, ("day", "model"), only)
    models = sorted({row.model for row in by_day if row.model is not None})
    return {
        "tenant": tenant, "tenants": selectors.tenants_of(request.user), "days": question.days, "periods": PERIODS, "only": only,
        "keys": keys, "models": sorted({*models, *([only.model] if only.model else [])}),
        "total": total, "tokens": tokens(total),
        "charts": {"tokens": tokens_chart(question, by_day, models), "requests": requests_chart(question, by_day)},
        "by_key": shares([(keys.get(str(row.key), str(row.key)), row) for row in everything(tenant, ("key",), only)]),
        "by_model": shares([(str(row.model), row) for row in everything(tenant, ("model",), only)]),
        "by_day": everything(tenant, ("day",), only),
        "budgets": overview.budgets([tenant.pk]),
        "latest": latest(tenant, only, keys),
        "query": request.GET.urlencode(),
    }


def everything(tenant: Tenant, by: Sequence[Group], only: Filter) -> list[Usage]:
    rows: list[Usage] = []
    after = None
    while True:
        page = usage.summed(tenant_id=tenant.pk, by=by, only=only, after=after, limit=usage.MOST)
        rows += page.rows
        after = page.after
        if after is None:
            return rows


def latest(tenant: Tenant, only: Filter, keys: dict[str, str]) -> list[tuple[Any, str, float | None]]:
    """(entry, its key's name, seconds) of the last requests."""
    page = usage.requests(tenant_id=tenant.pk, only=only, limit=LATEST)
    return [(row, keys.get(row.key_id, row.key_id), seconds(row)) for row in page.rows]


def seconds(row: Any) -> float | None:
    return None if row.settled is None else (row.settled - row.created).total_seconds()


def tokens(row: Usage) -> int:
    return row.prompt_tokens + row.completion_tokens


def shares(rows: Iterable[tuple[str, Usage]]) -> list[dict[str, Any]]:
    """By tokens, the most first, each with its part of the largest in percent."""
    ordered = sorted(rows, key=lambda item: -tokens(item[1]))
    most = max((tokens(row) for _, row in ordered), default=0)
    return [{"name": name, "sums": row, "tokens": tokens(row), "share": 100 * tokens(row) // most if most else 0} for name, row in ordered]


def days_of(question: Question) -> list[Any]:
    assert question.only.since is not None
    return [question.only.since + timedelta(days=n) for n in range(question.days)]


def tokens_chart(question: Question, rows: Sequence[Usage], models: Sequence[str]) -> dict[str, Any]:
    days = days_of(question)
    found = {(row.day, row.model): tokens(row) for row in rows}
    return bars(days, {model: [found.get((day, model), 0) for day in days] for model in models})


def requests_chart(question: Question, rows: Sequence[Usage]) -> dict[str, Any]:
    days = days_of(question)
    good, bad = dict.fromkeys(days, 0), dict.fromkeys(days, 0)
    for row in rows:
        good[row.day] += row.requests - row.failed
        bad[row.day] += row.failed
    return bars(days, {"answered": list(good.values()), "failed": list(bad.values())})


class UsageExport(View):
    """`GET /usage/export`: every request of the period as CSV, written while it is read."""

    def get(self, request: HttpRequest) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect_to_login(request)
        question = asked(request.user, request.GET)
        if question is None:
            raise Http404
        name = f"usage-{question.tenant.slug}-{overview.today().isoformat()}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        rows = usage.export(tenant_id=question.tenant.pk, only=question.only)
        return StreamingHttpResponse(rows, content_type="text/csv; charset=utf-8", headers=headers)


def redirect_to_login(request: HttpRequest) -> HttpResponse:
    return redirect(f"/admin/login/?next={request.path}")
