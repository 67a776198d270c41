"""The npm package `openai` against the running server. It is installed when the test first runs, into a folder that git ignores."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Scene

HERE = Path(__file__).parent / "javascript"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(scripted: Scene) -> dict[str, Any]:
    """What `client.mjs` saw."""
    node = installed()
    arguments = [node, "client.mjs", scripted.alice.url + "/v1", scripted.alice.key]
    done = subprocess.run(arguments, cwd=HERE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def installed() -> str:
    """Node, with the package beside `client.mjs`."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js and npm are not installed")
    if not (HERE / "node_modules" / "openai").is_dir():
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
        try:
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            pytest.skip("npm install took longer than two minutes")
        if done.returncode != 0:
            pytest.skip(f"npm cannot install the package: {done.stderr.strip()[-300:]}")
    return node


def test_an_answer_with_logprobs(seen: dict[str, Any]) -> None:
    assert (seen["content"], seen["usage"]) == ("H", 1)
    assert seen["candidates"] == [["H", -0.25], ["I", -1.5]]


def test_streams(seen: dict[str, Any]) -> None:
    assert (seen["streamed"], seen["streamedUsage"]) == ("Hé😀", 8)
    assert seen["assembled"] == "Hé😀"
    assert seen["left"]


def test_completions_and_models(seen: dict[str, Any]) -> None:
    assert (seen["text"], seen["models"], seen["model"]) == ("yes", ["m"], "m")


def test_its_error_classes(seen: dict[str, Any]) -> None:
    errors = seen["errors"]
    assert errors["badRequest"] == ["BadRequestError", 400, "temperature", 400]
    assert errors["notFound"] == ["NotFoundError", 404, "model", 404]
    assert errors["unauthorized"] == ["AuthenticationError", 401, None, "invalid_api_key"]
    assert errors["inStream"][0] in ("APIError", "InternalServerError")
