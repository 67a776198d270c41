"""What people come for, from end to end: an operator sets a tenant up and tries it; a tenant's owner does the same and sees no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opens, Stage
from tests.browser.visit import Playground, Visit


def saved(page: Page) -> None:
    """Press Save, and again where the page asks whether these changes are meant."""
    page.get_by_role("button", name="Save").first.click()


def made_key(visit: Visit, name: str, tenant: str | None = None) -> str:
    """A new key's text, out of the clipboard."""
    page = visit.page
    page.goto("/admin/tenants/key/add/")
    if tenant is not None:
        page.get_by_label("Tenant").select_option(tenant)
    page.get_by_label("Name", exact=False).first.fill(name)
    saved(page)
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#key-copied")).not_to_be_empty()
    visit.shot("key")
    return str(page.evaluate("navigator.clipboard.readText()"))


def set_flag(visit: Visit, tenant: str | None = None) -> None:
    """A tenant's defaults, in two steps: for whom, and what. The second asks before it saves."""
    page = visit.page
    page.goto("/admin/tenants/defaults/add/")
    if tenant is not None:
        page.get_by_label("Tenant").select_option(tenant)
    saved(page)
    page.get_by_label("return_tokens_as_token_ids").select_option("yes")
    expect(page.locator("#effect_return_tokens_as_token_ids")).to_have_text("in effect: yes (set here)")
    page.locator("#preview-request").fill('{"return_tokens_as_token_ids": false}')
    expect(page.locator("#preview-answer")).to_contain_text("the request says so")
    saved(page)
    dialog = page.get_by_role("dialog", name="Save these changes?")
    expect(dialog.get_by_role("row", name="return_tokens_as_token_ids inherits yes")).to_be_visible()
    visit.shot("differences")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("was changed successfully")).to_be_visible()


def watch_tokens(visit: Visit, key: str, tenant: str | None = None) -> Playground:
    """The default takes effect in the playground, and its logprobs name tokens by their ids."""
    page = visit.page
    page.goto("/playground/")
    if tenant is not None:
        page.locator("#tenant").select_option(tenant)
    page.locator("#key").select_option(key.split("_")[1])
    playground = Playground(page)
    expect(playground.field("return_tokens_as_token_ids")).to_contain_text("inherits yes (the tenant)")
    playground.answer_with("</think>abc")
    playground.open("Settings")
    playground.ask()
    playground.until_answered()
    playground.tokens().filter(has_text="b").hover()
    expect(page.get_by_role("tooltip")).to_contain_text("token_id:98")
    visit.shot("tokens")
    return playground


def cancelled(playground: Playground) -> None:
    playground.answer_with("</think>" + "x" * 200, wait_ms=40)
    playground.ask()
    expect(playground.tokens().nth(10)).to_be_attached()
    playground.page.get_by_role("button", name="Stop").click()
    expect(playground.answer()).to_contain_text("Stopped.")


def test_an_operator_sets_a_tenant_up(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    page = visit.login("rita", to="/admin/")
    page.get_by_role("link", name="Tenants").click()
    page.goto("/admin/tenants/tenant/add/")
    page.get_by_label("Name").first.fill("Initech")
    saved(page)
    expect(page.get_by_text("was added successfully")).to_be_visible()
    key = made_key(visit, "first", tenant="Initech")
    assert re.fullmatch(r"tk_[0-9a-f]{16}_[0-9a-f]{64}", key)
    set_flag(visit, tenant="Initech")
    cancelled(watch_tokens(visit, key, tenant="Initech"))
    page.goto("/usage/")
    page.get_by_label("Tenant").select_option(label="Initech")
    expect(page.get_by_role("heading", name="Usage of Initech")).to_be_visible()
    expect(page.get_by_role("region", name="The last requests").get_by_text("completed")).to_be_visible()
    expect(page.get_by_role("region", name="The last requests").get_by_text("cancelled")).to_be_visible()
    visit.shot("usage")


@pytest.fixture
def acme_as_it_was(stage: Stage) -> Iterator[None]:
    """Acme's people in other tests have no defaults."""
    yield
    code = f"Defaults.objects.filter(tenant_id={stage.acme.id}).delete()"
    stage.platform.manage("shell", "-c", f"from tenants.models import Defaults; {code}")


@pytest.mark.usefixtures("acme_as_it_was")
def test_an_owner_does_the_same_and_sees_no_other_tenant(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    page = visit.login("olga", to="/admin/")
    key = made_key(visit, "olgas")
    set_flag(visit)
    watch_tokens(visit, key)
    page.goto("/usage/")
    expect(page.get_by_role("heading", name="Usage of Acme")).to_be_visible()
    lists = [f"/admin/tenants/{noun}/" for noun in ("tenant", "member", "key", "defaults", "entry", "auditentry")]
    for path in ("/admin/", "/usage/", "/playground/", *lists):
        page.goto(path)
        assert "Globex" not in page.content(), path
        assert stage.globex.key.split("_")[1] not in page.content(), path
    visit.expects("status of 404")
    page.goto(f"/usage/?tenant={stage.globex.id}")
    expect(page.get_by_text("Not Found").first).to_be_visible()


def test_a_change_is_taken_back(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    page = visit.login("stan", to="/admin/")
    page.goto("/admin/tenants/defaults/")
    page.get_by_role("link", name="Every model", exact=True).click()
    expect(page.locator("#id_temperature")).to_have_value("0.3")
    page.locator("#id_temperature").fill("0.8")
    saved(page)
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("was changed successfully")).to_be_visible()
    page.goto("/admin/tenants/defaults/")
    page.get_by_role("link", name="Every model", exact=True).click()
    page.goto(page.url.replace("/change/", "/history/"))
    visit.shot("history")
    page.get_by_role("button", name="Set all back to before this").first.click()
    expect(page.locator("#id_temperature")).to_have_value("0.3")
