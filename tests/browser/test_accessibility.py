"""Every page by axe-core, in light and dark and on a narrow screen: no serious violation, nothing that scrolls sideways."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opens, Stage
from tests.browser.visit import Playground, Visit
from tests.tokenry.web.ledger import use

LOOKS: list[dict[str, Any]] = [{"dark": False}, {"dark": True}, {"dark": False, "width": 390}]
NOUNS = ("tenant", "member", "key", "defaults", "limit", "entry", "rollup", "price", "auditentry")
FORMS = ("tenant", "member", "key", "defaults", "limit", "price")


@pytest.fixture(scope="module")
def used(stage: Stage) -> Stage:
    key = stage.acme.key.split("_")[1]
    answered = [(key, model, days, 40 * days, 20, "completed") for days in range(9) for model in ("m", "other")]
    use(stage.platform, *answered, (key, "m", 0, 5, 0, "failed"))
    return stage


def looked_at(visit: Visit, axe: str, path: str, name: str) -> None:
    visit.page.goto(path)
    visit.page.wait_for_load_state("load")
    visit.check_accessibility(axe)
    visit.shot(name)


@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "narrow"])
def test_the_playground(opens: Opens, used: Stage, axe: str, look: dict[str, Any]) -> None:
    visit = opens(used.platform, **look)
    visit.page.goto("/admin/login/")
    visit.check_accessibility(axe)
    playground = Playground(visit.login("dora"))
    visit.check_accessibility(axe)
    visit.shot("empty")
    playground.answer_with("<think>All tints.</think>Every probability from nearly none to nearly one.")
    playground.open("The request that results")
    visit.check_accessibility(axe)
    playground.ask()
    playground.until_answered()
    playground.tokens().nth(12).hover()
    expect(visit.page.get_by_role("tooltip")).to_be_visible()
    visit.check_accessibility(axe)
    visit.shot("answer")


@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "narrow"])
def test_usage(opens: Opens, used: Stage, axe: str, look: dict[str, Any]) -> None:
    visit = opens(used.platform, **look)
    visit.login("olga", to="/usage/")
    looked_at(visit, axe, "/usage/", "used")
    looked_at(visit, axe, "/usage/?model=never-used", "empty")


@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "narrow"])
def test_the_admins_own_pages(opens: Opens, used: Stage, axe: str, look: dict[str, Any]) -> None:
    visit = opens(used.platform, **look)
    visit.login("rita", to="/admin/")
    looked_at(visit, axe, "/admin/", "overview")
    visit.page.goto("/admin/tenants/defaults/")
    visit.page.get_by_role("link", name="Every model").first.click()
    expect(visit.page.locator("#preview-answer table")).to_be_visible()
    visit.check_accessibility(axe)
    visit.shot("defaults")
    looked_at(visit, axe, visit.page.url.replace("/change/", "/history/"), "defaults-history")


@pytest.mark.parametrize("noun", NOUNS)
def test_the_admins_lists_and_forms(opens: Opens, used: Stage, axe: str, noun: str) -> None:
    visit = opens(used.platform)
    visit.login("rita", to=f"/admin/tenants/{noun}/")
    visit.check_accessibility(axe)
    visit.shot("list")
    if noun in FORMS:
        looked_at(visit, axe, f"/admin/tenants/{noun}/add/", "form")
