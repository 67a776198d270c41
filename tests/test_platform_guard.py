"""platform/ must never become a package: it would shadow the standard library's `platform`, which torch, uuid and uvicorn import."""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.world import ROOT


def test_platform_is_the_standard_library() -> None:
    assert Path(platform.__file__).parent == Path(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("folder", [ROOT, ROOT / "platform", ROOT / "tests", Path("/")], ids=["root", "platform", "tests", "elsewhere"])
def test_everything_is_importable_from_anywhere(folder: Path) -> None:
    code = "import platform, tokenry, tenants, inference.protocol; platform.system(); print(platform.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == Path(sysconfig.get_path("stdlib"))


def test_platform_holds_only_tokenry() -> None:
    held = {entry.name for entry in (ROOT / "platform").iterdir()} - {"__pycache__"}
    assert held == {"tokenry"}


def test_tests_do_not_shadow_anything() -> None:
    assert (ROOT / "tests" / "__init__.py").is_file()
    assert not (ROOT / "tests" / "platform").exists()
