"""What a process may load: the platform's never torch, the core never Django. The linter reads sources; this looks at what is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.world import ROOT, environment

HEAVY = ("torch", "transformers")


def loaded(code: str, home: os.PathLike[str]) -> set[str]:
    """Top-level packages that a fresh process has loaded after `code`."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    env = {**environment(home), "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "tokenry.settings"}
    done = subprocess.run([sys.executable, "-c", f"{code}\n{show}"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def modules(*folders: str) -> list[str]:
    """All modules below these folders of the root."""
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    dotted = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return sorted(name.removeprefix("platform.").removesuffix(".__init__") for name in dotted)


def test_the_platform_never_loads_torch(tmp_path: os.PathLike[str]) -> None:
    ours = [name for name in modules("platform/tokenry", "tenants") if ".migrations." not in name]
    imports = "\n".join(f"import {name}" for name in ours)
    assert not loaded(f"import django; django.setup()\n{imports}", tmp_path) & set(HEAVY)


def test_the_core_loads_neither_django_nor_torch(tmp_path: os.PathLike[str]) -> None:
    ours = [name for name in modules("inference") if not name.startswith("inference.engine.")]
    assert not loaded("\n".join(f"import {name}" for name in ours), tmp_path) & {*HEAVY, "django", "channels", "rest_framework"}


@pytest.mark.parametrize("name", ["inference.protocol", "inference.errors"])
def test_the_protocol_stands_alone(name: str, tmp_path: os.PathLike[str]) -> None:
    assert not loaded(f"import {name}", tmp_path) & {*HEAVY, "django", "tokenizers", "aiohttp"}
