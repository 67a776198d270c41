"""The playground on the real model: what it says is its own, and so are the probabilities."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opens
from tests.browser.visit import Playground
from tests.conftest import Scene
from tests.people import make_people


@pytest.mark.slow
def test_the_capital_of_france(opens: Opens, real: Scene) -> None:
    make_people(real.platform, ("paula", "Alice", "developer"))
    visit = opens(real.platform)
    playground = Playground(visit.login("paula"))
    playground.open("Settings")
    playground.field("temperature").locator("input").fill("0")
    playground.field("max_tokens").locator("input").fill("24")
    playground.open("Settings")
    playground.ask("What is the capital of France?")
    playground.until_answered()
    expect(playground.answer()).to_contain_text("Paris")
    expect(playground.part("timing")).to_have_text(re.compile(r"first token .* tokens/s · \d+ tokens"))
    paris = playground.tokens().filter(has_text=" Paris").first
    paris.hover()
    card = visit.page.get_by_role("tooltip")
    expect(card.locator("tbody tr")).to_have_count(5)
    expect(card.locator("tbody tr.taken td").last).to_have_text(re.compile(r"^\d+$"))
    expect(card.locator("tbody tr td:last-child").last).to_have_text(re.compile(r"^\d+( or \d+)*$|part of a character"))
    visit.shot("paris")
