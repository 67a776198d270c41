"""`/v1/usage`: what the tenant has used. Sums by day, key and model; single requests; everything as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from typing import Any, cast

from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request

from inference.errors import BadRequest
from tenants import usage
from tenants.models import Entry
from tenants.usage import Filter, Group
from tokenry.api.base import TenantView, answer, whole_number

GROUPS = ("day", "key", "model")


class UsageView(TenantView):
    """`?by=day,model&since=2026-01-01&until=2026-01-31&key=&model=&after=&limit=`"""

    scope = "usage:read"

    def get(self, request: Request) -> HttpResponse:
        query = request.query_params
        page = usage.summed(
            tenant_id=self.caller.tenant_id, by=groups(query.get("by", "day")), only=filtered(query), after=query.get("after"),
            limit=whole_number(query, "limit", 100))
        return answer({"object": "list", "data": [asdict(row) for row in page.rows], "after": page.after})


class UsageRequestsView(TenantView):
    scope = "usage:read"

    def get(self, request: Request) -> HttpResponse:
        query = request.query_params
        page = usage.requests(
            tenant_id=self.caller.tenant_id, only=filtered(query), after=query.get("after"), limit=whole_number(query, "limit", 100))
        return answer({"object": "list", "data": [shown(row) for row in page.rows], "after": page.after})


class UsageExportView(TenantView):
    """The requests of a range of days as CSV, sent as they are read."""

    scope = "usage:read"

    def get(self, request: Request) -> StreamingHttpResponse:
        rows = usage.export(tenant_id=self.caller.tenant_id, only=filtered(request.query_params))
        return StreamingHttpResponse(
            rows, content_type="text/csv; charset=utf-8", headers={"Content-Disposition": 'attachment; filename="usage.csv"'})


def filtered(query: Mapping[str, str]) -> Filter:
    return Filter(day(query, "since"), day(query, "until"), query.get("key"), query.get("model"), query.get("status"))


def groups(text: str) -> list[Group]:
    names = [name for name in text.split(",") if name]
    unknown = set(names) - set(GROUPS)
    if unknown:
        raise BadRequest(f"by takes {', '.join(GROUPS)}, separated by commas; got {text!r}.", "by")
    return cast(list[Group], names)


def day(query: Mapping[str, str], name: str) -> date | None:
    text = query.get(name)
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{name} must be a day as YYYY-MM-DD, got {text!r}.", name) from None


def shown(row: Entry) -> dict[str, Any]:
    return {
        "object": "usage.request",
        "id": row.id,
        "request_id": row.request_id,
        "status": row.status,
        "key": row.key_id,
        "model": row.model,
        "endpoint": row.endpoint,
        "created_at": row.created,
        "settled_at": row.settled,
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "cached_tokens": row.cached_tokens,
        "cost": row.money,
        "effective": row.effective,
    }
