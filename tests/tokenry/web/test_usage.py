"""The usage page, its CSV and the admin's overview: the right sums, and nobody else's."""

from __future__ import annotations

import csv
import io

import httpx
import pytest

from tests.conftest import Scene
from tests.people import Person, make_people
from tests.tokenry.web.conftest import People
from tests.tokenry.web.ledger import use


def key_id(key: str) -> str:
    return key.split("_")[1]


@pytest.fixture(scope="module")
def used(scripted: Scene, people: People) -> People:
    """Carol's use is known to the token; Bob's model has a name that nobody else may read."""
    carol, bob = scripted.platform.tenant("Carol"), scripted.bob
    manage = "from tenants.models import *; from decimal import Decimal; t = Tenant.objects.get(name='Carol'); "
    limit = "Limit(tenant=t, tokens_per_day=1000, cost_per_month=Decimal(1)).save()"
    scripted.platform.manage("shell", "--no-imports", "-c", manage + limit)
    use(
        scripted.platform,
        (key_id(carol.key), "m", 0, 700, 150, "completed"),
        (key_id(carol.key), "larger", 2, 1000, 0, "failed"),
        (key_id(carol.key), "m", 60, 5, 5, "completed"),
        (key_id(bob.key), "bobs-secret-model", 0, 9999, 1, "completed"),
    )
    return people


@pytest.fixture(scope="module")
def carol(scripted: Scene, used: People) -> Person:
    (person,) = make_people(scripted.platform, ("carol", "Carol", "viewer"))
    return person


def test_sums_of_the_period(carol: Person) -> None:
    page = carol.data("/usage/", days=30).text
    assert "Usage of Carol" in page
    assert ">1,850<" in page  # tokens: 850 today, 1000 two days ago
    assert ">1,855<" not in page
    assert ">1,860<" in carol.data("/usage/", days=90).text


def test_filters_by_model(carol: Person) -> None:
    assert ">850<" in carol.data("/usage/", days=7, model="m").text


def test_budgets_say_how_near_they_are(carol: Person) -> None:
    page = carol.data("/usage/").text
    assert "85 %" in page
    assert "tokens today" in page


def test_another_tenants_usage_does_not_exist(used: People, carol: Person, scripted: Scene) -> None:
    for path in ("/usage/", "/usage/export"):
        assert carol.data(path, tenant=scripted.bob.id).status_code == 404
        assert carol.data(path, tenant="999999").status_code == 404
        assert carol.data(path, tenant="nonsense").status_code == 404
    assert "bobs-secret-model" not in carol.data("/usage/").text + carol.data("/usage/export").text + carol.data("/admin/").text
    assert "bobs-secret-model" in used.stranger.data("/usage/").text
    assert "bobs-secret-model" in used.root.data("/usage/", tenant=scripted.bob.id).text


def test_csv_has_every_request_of_the_period(carol: Person) -> None:
    answer = carol.data("/usage/export", days=30)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="usage-carol-')
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    told = [(row["model"], row["status"], row["prompt_tokens"]) for row in rows]
    assert told == [("larger", "failed", "1000"), ("m", "completed", "700")]


def test_pages_want_a_login(scripted: Scene) -> None:
    for path in ("/usage/", "/usage/export"):
        answer = httpx.get(scripted.platform.url + path)
        assert (answer.status_code, answer.headers["location"]) == (302, f"/admin/login/?next={path}")


def test_who_used_nothing_is_told_what_to_do(used: People, scripted: Scene) -> None:
    idle = scripted.platform.tenant("Idle")
    page = used.root.data("/usage/", tenant=idle.id).text
    assert "Nothing was used in this period" in page
    assert "/playground/" in page


# The admin's overview


def test_the_day_at_a_glance(carol: Person) -> None:
    page = carol.data("/admin/").text
    assert ">850<" in page
    assert "1.50 s" in page
    assert "Carol, the whole tenant: 85 % of tokens today is used." in page
    assert 'id="nodes"' not in page


def test_platform_staff_see_all_tenants_and_the_nodes(used: People, scripted: Scene) -> None:
    page = used.root.data("/admin/").text
    assert "bobs-secret-model" in page
    assert scripted.node.url in page
    assert ">up<" in page


def test_a_key_that_is_about_to_expire_is_told_of(carol: Person, scripted: Scene) -> None:
    lines = "from django.utils import timezone; from datetime import timedelta; from tenants.models import Key; "
    change = "k = Key.objects.get(tenant__name='Carol'); k.expires_at = timezone.now() + timedelta(days=3); k.save()"
    scripted.platform.manage("shell", "--no-imports", "-c", lines + change)
    assert "Key first key of Carol expires in 2\xa0days" in carol.data("/admin/").text
