"""What a tenant reads of its ledger: sums, pages, the export; and never another's."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from inference.errors import BadRequest
from tenants import services, usage
from tenants.entry_ids import first_id, new_id
from tenants.ledger import Batch, Outcome, book
from tenants.models import Counter, Entry, Key, Rollup, Status
from tenants.threads import in_thread
from tenants.usage import Filter, Page, Usage
from tests.tenants.ledger_world import Customer, check_books, make_customer

MONDAY = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)


def use(
    customer: Customer, at: datetime, *, key: Key | None = None, model: str = "m", tokens: int = 5,
    status: Status = Status.COMPLETED, request_id: str = "r",
) -> str:
    entry = Entry(
        id=new_id(at), tenant_id=customer.tenant.pk, key_id=(key or customer.key).public_id, model=model, endpoint="chat",
        request_id=request_id, process="p", created=at, reserved_tokens=100, prompt_tokens=10, rate_output=2_000_000,
    )
    book.write(Batch(started=[entry], outcomes=[Outcome(entry.id, status, at, 10, tokens, 3)]), "p")
    return entry.id


@pytest.fixture
def acme(database: str) -> Customer:
    """Two keys, two models, two days; and a neighbour who has used as much."""
    acme, globex = make_customer("Acme"), make_customer("Globex")
    second, _ = services.create_key(tenant=acme.tenant, name="second")
    for day in range(2):
        at = MONDAY + timedelta(days=day)
        use(acme, at, model="a")
        use(acme, at, model="b", tokens=7, status=Status.FAILED)
        use(acme, at, model="a", key=second, tokens=11)
        use(globex, at)
    return acme


def all_pages(acme: Customer, limit: int, **more: object) -> list[Usage]:
    rows: list[Usage] = []
    page: Page[Usage] = usage.summed(tenant_id=acme.tenant.pk, limit=limit, **more)  # type: ignore[arg-type]
    rows += page.rows
    while page.after is not None:
        page = usage.summed(tenant_id=acme.tenant.pk, limit=limit, after=page.after, **more)  # type: ignore[arg-type]
        rows += page.rows
    return rows


def test_sums_by_day(acme: Customer) -> None:
    page = usage.summed(tenant_id=acme.tenant.pk, by=["day"])
    assert [row.day for row in page.rows] == [date(2026, 12, 1), date(2026, 11, 30)]
    assert page.rows[0] == Usage(date(2026, 12, 1), None, None, 3, 1, 30, 23, 9, Decimal("0.000046"))
    assert page.after is None
    check_books()


def test_sums_by_key_and_model_with_filters(acme: Customer) -> None:
    rows = usage.summed(tenant_id=acme.tenant.pk, by=["model", "key"], only=Filter(until=date(2026, 11, 30))).rows
    assert [(row.model, row.completion_tokens) for row in rows if row.key == acme.key.public_id] == [("a", 5), ("b", 7)]
    assert sum(row.completion_tokens for row in rows) == 23
    [total] = usage.summed(tenant_id=acme.tenant.pk, by=[], only=Filter(model="a")).rows
    assert (total.requests, total.completion_tokens) == (4, 32)


def test_a_tenant_that_has_used_nothing(database: str) -> None:
    tenant = services.create_tenant(name="New")
    [total] = usage.summed(tenant_id=tenant.pk, by=[]).rows
    assert (total.requests, total.cost) == (0, 0)
    assert usage.summed(tenant_id=tenant.pk, by=["day"]).rows == []


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 6, 100])
def test_pages_together_are_the_whole(acme: Customer, limit: int) -> None:
    whole = usage.summed(tenant_id=acme.tenant.pk, by=["day", "key", "model"]).rows
    assert len(whole) == 6
    assert all_pages(acme, limit, by=["day", "key", "model"]) == whole


def test_requests_page_by_page_newest_first(acme: Customer) -> None:
    first = usage.requests(tenant_id=acme.tenant.pk, limit=4)
    rest = usage.requests(tenant_id=acme.tenant.pk, limit=4, after=first.after)
    ids = [row.id for row in (*first.rows, *rest.rows)]
    assert len(ids) == 6
    assert ids == sorted(ids, reverse=True)
    assert rest.after is None


def test_requests_of_a_day_end_at_midnight(acme: Customer) -> None:
    use(acme, datetime(2026, 12, 1, tzinfo=UTC), request_id="first of the day")
    of_day = usage.requests(tenant_id=acme.tenant.pk, only=Filter(since=date(2026, 12, 1), until=date(2026, 12, 1))).rows
    assert of_day[-1].request_id == "first of the day"
    assert len(of_day) == 4
    failed = usage.requests(tenant_id=acme.tenant.pk, only=Filter(status=Status.FAILED, key=acme.key.public_id, model="b")).rows
    assert len(failed) == 2


def test_another_tenants_key_finds_nothing(acme: Customer) -> None:
    stranger = Key.objects.exclude(tenant=acme.tenant).get()
    assert usage.requests(tenant_id=acme.tenant.pk, only=Filter(key=stranger.public_id)).rows == []
    assert usage.summed(tenant_id=acme.tenant.pk, by=["day"], only=Filter(key=stranger.public_id)).rows == []


@pytest.mark.parametrize(("name", "value"), [("limit", 0), ("limit", 1001), ("after", "nonsense"), ("after", "WzFd")])
def test_what_cannot_be_is_refused_by_name(acme: Customer, name: str, value: object) -> None:
    with pytest.raises(BadRequest) as caught:
        usage.summed(tenant_id=acme.tenant.pk, by=["day"], **{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
async def test_export_in_pieces(acme: Customer, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    await in_thread(use, acme, MONDAY + timedelta(days=2), request_id="=cmd()")
    monkeypatch.setattr(usage, "EXPORT_CHUNK", chunk)
    text = "".join([piece async for piece in usage.export(tenant_id=acme.tenant.pk)])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert len(rows) == 7
    assert (rows[-1]["cost"], rows[-1]["completion_tokens"], rows[-1]["request_id"]) == ("0.00001", "5", "'=cmd()")


def test_retention_keeps_the_sums(acme: Customer) -> None:
    before = usage.summed(tenant_id=acme.tenant.pk, by=["day", "key", "model"]).rows
    assert usage.forget(before=date(2026, 12, 1)) == 4
    assert Entry.objects.filter(id__lt=first_id(MONDAY + timedelta(seconds=1))).count() == 0
    assert usage.summed(tenant_id=acme.tenant.pk, by=["day", "key", "model"]).rows == before
    assert Rollup.objects.count() == 8
    assert Counter.objects.filter(period="2026-11").exists()
