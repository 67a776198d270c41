"""A real browser: Debian's chromium, or another that is found. Without one these tests are skipped, and say so."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import axe as axe_core
from tests.browser.visit import Visit
from tests.conftest import Scene
from tests.people import Person, make_people
from tests.world import Server, Tenant, World

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]
Opens = Callable[..., Visit]


@pytest.fixture(scope="session")
def browser_path() -> str:
    path = os.environ.get("TOKENRY_TEST_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    return path


@pytest.fixture(scope="package")
def browser(browser_path: str) -> Iterator[Browser]:
    """Ended with this folder's tests: while it runs, no other test of this process could run an event loop."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opens(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Opens]:
    """Opens tabs, each with a session of its own: `opens(server, dark=..., width=...)`. All are checked in the end."""
    visits: list[Visit] = []

    def open_visit(server: Server, **look: Any) -> Visit:
        name = re.sub(r"[^a-z0-9-]+", "-", request.node.name.removeprefix("test_").lower())
        visits.append(Visit(browser, server.url, name, **look))
        return visits[-1]

    yield open_visit
    for visit in visits:
        visit.close()


@pytest.fixture(scope="session")
def axe() -> str:
    try:
        return axe_core.source()
    except axe_core.Missing as reason:
        pytest.skip(str(reason))


@dataclass(frozen=True)
class Stage:
    """A platform that parses reasoning and tool calls, with two tenants and their people. Dora is a developer in Acme, Olga its owner,
    Vera a viewer; Stan owns Globex; Rita runs the platform."""

    platform: Server
    acme: Tenant
    globex: Tenant
    people: dict[str, Person]


@pytest.fixture(scope="session")
def stage(browser_path: str, world: World, request: pytest.FixtureRequest) -> Stage:
    flags = ("--reasoning-parser", "deepseek_r1", "--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    scripted: Scene = request.getfixturevalue("scripted")  # servers are started only where there is a browser to see them
    platform = world.scripted_platform("stage", scripted.node, *flags)
    acme, globex = platform.tenant("Acme"), platform.tenant("Globex", "temperature=0.3")
    acmes = [("dora", "Acme", "developer"), ("olga", "Acme", "owner"), ("vera", "Acme", "viewer")]
    people = make_people(platform, ("rita", None, ""), *acmes, ("stan", "Globex", "owner"))
    return Stage(platform, acme, globex, {person.name: person for person in people})
