"""A tab of a real browser, watched: nothing may be amiss in its console, and nothing may be asked of another host."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

from tests.browser.axe import serious
from tests.people import PASSWORD
from tests.world import ROOT

SHOTS = ROOT / ".browser" / "screenshots"
END = 258  # tokenizer t1's <|im_end|>; its other ids below 256 are bytes
PROBABILITIES = (0.99, 0.9, 0.7, 0.5, 0.3, 0.1, 0.02)

expect.set_options(timeout=15_000)  # the machine may be busy


class Visit:
    """`page` is Playwright's. Closing the visit is what checks it."""

    def __init__(self, browser: Browser, url: str, name: str, *, dark: bool = False, width: int = 1280) -> None:
        self.url = url
        self.name = name
        self.faults: list[str] = []
        self.expected: list[str] = []
        scheme = "dark" if dark else "light"
        self.context = browser.new_context(base_url=url, viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page: Page = self.context.new_page()
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("request", self.see)

    def hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def see(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.faults.append(f"asked another host: {request.url}")

    def expects(self, pattern: str) -> None:
        """The console may show this fault: the test provokes it."""
        self.expected.append(pattern)

    def close(self) -> None:
        self.context.close()
        unforeseen = [fault for fault in self.faults if not any(re.search(pattern, fault) for pattern in self.expected)]
        assert not unforeseen, "\n".join(unforeseen)

    # What a visitor does

    def login(self, name: str, password: str = PASSWORD, *, to: str = "/playground/") -> Page:
        self.page.goto(to)
        self.page.fill("#id_username", name)
        self.page.fill("#id_password", password)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(f"**{to}")
        return self.page

    def shot(self, name: str) -> Path:
        """A picture of the whole page, kept after the run."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        file = SHOTS / f"{self.name}-{name}.png"
        self.page.screenshot(path=file, full_page=True)
        return file

    def check_accessibility(self, axe: str) -> None:
        """No serious violation on the page as it is now, and no sideways scrolling."""
        found = serious(self.page, axe)
        assert not found, "\n".join(found)
        wider = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, f"{self.page.url} is {wider} pixels wider than the window"


class Playground:
    """The playground's parts, by what they are for."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def panel(self, name: str = "A") -> Locator:
        return self.page.get_by_role("region", name=f"Configuration {name}", exact=True)

    def open(self, summary: str, panel: str = "A") -> None:
        """Unfold one of a panel's parts, if it is folded."""
        details = self.panel(panel).locator("details", has=self.page.locator("summary", has_text=summary))
        if details.get_attribute("open") is None:
            details.locator("summary").click()

    def part(self, name: str, panel: str = "A") -> Locator:
        return self.panel(panel).locator(f'[data-part="{name}"]')

    def field(self, name: str, panel: str = "A") -> Locator:
        return self.panel(panel).locator(f'[data-field="{name}"]')

    def answer_with(self, text: str, *, wait_ms: float = 0, panel: str = "A") -> None:
        """What the scripted engine will say, from the next message on."""
        self.open("Settings", panel)
        self.part("extra", panel).fill(json.dumps({"vllm_xargs": {"script": steps(text, wait_ms)}}))

    def ask(self, text: str = "Well?") -> None:
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.get_by_label("Message", exact=True).press("Enter")

    def answer(self, panel: str = "A") -> Locator:
        return self.panel(panel).locator(".turn.assistant").last

    def tokens(self, panel: str = "A") -> Locator:
        return self.answer(panel).locator(".token")

    def until_answered(self, panel: str = "A") -> None:
        expect(self.answer(panel).locator(".waiting")).to_have_count(0)
        expect(self.page.get_by_role("button", name="Send")).to_be_visible()


def steps(text: str, wait_ms: float = 0, probabilities: Sequence[float] = PROBABILITIES) -> list[dict[str, Any]]:
    """One byte a step, each with its probability and three that were less or more likely; then the end."""
    made = []
    for place, byte in enumerate(text.encode()):
        likely = probabilities[place % len(probabilities)]
        others = [[token, math.log((1 - likely) / part), part] for token, part in ((ord("h"), 2), (ord("e"), 3), (200, 8))]
        made.append({"ids": [byte], "rows": [[[byte, math.log(likely), 1], *others]], "wait_ms": wait_ms})
    return [*made, {"ids": [END], "rows": [[[END, math.log(0.9), 1]]]}]
