"""axe-core, the accessibility checker, got from npm once and kept beside the screenshots."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.world import ROOT

VERSION = "4.14.1"
FILE = ROOT / ".browser" / f"axe-core-{VERSION}.js"
LEVELS = ("serious", "critical")


class Missing(Exception):
    """Why there is no axe-core, in a sentence."""


def source() -> str:
    """Raises Missing."""
    if not FILE.is_file():
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_bytes(fetched(FILE.parent))
    return FILE.read_text()


def fetched(folder: Path) -> bytes:
    if shutil.which("npm") is None:
        raise Missing("npm, which gets axe-core, is not installed")
    done = subprocess.run(["npm", "pack", "--silent", f"axe-core@{VERSION}"], cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Missing(f"npm could not get axe-core: {done.stderr.strip()[-200:]}")
    packed = folder / done.stdout.strip().splitlines()[-1]
    with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        content = member.read()
    packed.unlink()
    return content


def serious(page: Page, axe: str) -> list[str]:
    """What axe finds serious or critical, a line each. The script comes in by the debugger's door, which no policy of the page closes."""
    page.evaluate(axe)
    result: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    found = [violation for violation in result["violations"] if violation["impact"] in LEVELS]
    return [line(page.url, violation, node) for violation in found for node in violation["nodes"][:3]]


def line(url: str, violation: Any, node: Any) -> str:
    return f"{url}: {violation['id']}: {violation['help']}: {node['html'][:200]}: {node['failureSummary']}"
