"""What a real vLLM 0.32.0 answered, replayed against our servers with the same model.

`differences.json` lists what differs on purpose, each with its reason; an entry that no longer occurs is a failure too.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Scene, model_flags
from tests.contract import replay
from tests.world import NODE_SECRET, World

HERE = Path(__file__).parent
RECORDINGS = HERE / "vllm"
AREAS = ("coupled_chat", "coupled_completion")  # more as they are built
ON_PURPOSE: list[dict[str, str]] = json.loads((HERE / "differences.json").read_text())
Difference = tuple[str, Any, Any]
Targets = Mapping[str, tuple[str, str]]

pytestmark = pytest.mark.slow


def load(case: str) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads((RECORDINGS / f"{case}.json").read_text())
    return recording


def exchanges(recording: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = recording.get("exchanges") or [recording]
    return [{"server": recording.get("server", ""), "path": recording["path"], **step} for step in steps]


CASES = [case for area in AREAS for case in sorted(f"{area}/{file.stem}" for file in (RECORDINGS / area).glob("*.json"))]


@pytest.fixture(scope="session")
def targets(world: World, real: Scene, model_folder: Path) -> Targets:
    """The servers that were recorded, by the name that `replay` gives them, each with the key that opens it."""
    flags = (*model_flags(model_folder), "--return-tokens-as-token-ids")
    ids = world.serve("real-ids", "--role", "platform", "--node", real.node.url, *flags)
    platform = (real.platform.url, real.alice.key)
    return {
        "render": platform,
        "coupled": platform,
        "coupled-ids": (ids.url, ids.tenant("Alice").key),
        "tokens-only": (real.node.url, NODE_SECRET),
    }


@pytest.mark.parametrize("case", CASES)
def test_recorded(case: str, targets: Targets) -> None:
    recording = load(case)
    if lacking := {replay.target_of(step["server"]) for step in exchanges(recording)} - set(targets):
        pytest.skip(f"no server like {', '.join(lacking)} yet")
    unexplained = [found for found in differences(recording, targets) if not reasons(case, found[0])]
    assert not unexplained, "\n".join(f"{at}: recorded {want!r:.200}, ours {got!r:.200}" for at, want, got in unexplained)


def test_every_difference_on_purpose_still_occurs(targets: Targets) -> None:
    found = {case: list(differences(load(case), targets)) for case in CASES if any(fnmatch.fnmatch(case, d["case"]) for d in ON_PURPOSE)}
    occurring = [entry for entry in ON_PURPOSE if any(matches(entry, case, at) for case in found for at, _, _ in found[case])]
    assert [entry for entry in ON_PURPOSE if entry not in occurring] == []


def differences(recording: dict[str, Any], targets: Targets) -> Iterator[Difference]:
    """Where our answers differ from the recorded ones, step by step; paths of a sequence begin with the step's number."""
    with httpx.Client(timeout=120) as client:
        for number, step in enumerate(exchanges(recording)):
            url, key = targets[replay.target_of(step["server"])]
            answer = replay.send(client, url, key, step, step["path"])
            for at, want, got in replay.judge(*answer, step):
                yield f"#{number}{at}" if "exchanges" in recording else at, want, got


def reasons(case: str, at: str) -> list[str]:
    return [entry["reason"] for entry in ON_PURPOSE if matches(entry, case, at)]


def matches(entry: dict[str, str], case: str, at: str) -> bool:
    return fnmatch.fnmatch(case, entry["case"]) and fnmatch.fnmatch(at, entry["at"])
