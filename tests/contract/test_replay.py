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
LEFT_OUT = (
    "auth/*",  # the keys that were recorded are not ours; our own tests of keys are elsewhere
    "*/abort_real*",  # when an abort arrives is nobody's choice, so these answers never come again
    "pipeline/quirk_default_max_tokens_16",  # 2034 tokens, to show a fault of the recorded server
)
ON_PURPOSE: list[dict[str, str]] = json.loads((HERE / "differences.json").read_text())
Difference = tuple[str, Any, Any]

pytestmark = pytest.mark.slow


def load(case: str) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads((RECORDINGS / f"{case}.json").read_text())
    return recording


def exchanges(recording: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = recording.get("exchanges") or [recording]
    return [{"server": recording.get("server", ""), "path": recording["path"], **step} for step in steps]


def recorded() -> Iterator[str]:
    """The cases to replay, `area/name`."""
    for file in sorted(RECORDINGS.glob("*/*.json")):
        case = f"{file.parent.name}/{file.stem}"
        if not any(fnmatch.fnmatch(case, left_out) for left_out in LEFT_OUT):
            yield case


CASES = list(recorded())


class Replay:
    """The servers that were recorded, by the name that `replay` gives them, each with the key that opens it; what was found is kept."""

    def __init__(self, servers: Mapping[str, tuple[str, str]]) -> None:
        self.servers = servers
        self.found: dict[str, list[Difference]] = {}

    def differences(self, case: str) -> list[Difference]:
        if case not in self.found:
            self.found[case] = list(self.replayed(load(case)))
        return self.found[case]

    def replayed(self, recording: dict[str, Any]) -> Iterator[Difference]:
        """Where our answers differ from the recorded ones, step by step; paths of a sequence begin with the step's number."""
        with httpx.Client(timeout=120) as client:
            for number, step in enumerate(exchanges(recording)):
                url, key = self.servers[replay.target_of(step["server"])]
                answer = replay.send(client, url, key, step, step["path"])
                for at, want, got in replay.judge(*answer, step):
                    yield f"#{number}{at}" if "exchanges" in recording else at, want, got


@pytest.fixture(scope="session")
def replayer(world: World, real: Scene, model_folder: Path) -> Replay:
    def platform(name: str, *flags: str) -> tuple[str, str]:
        server = world.serve(name, "--role", "platform", "--node", real.node.url, *model_flags(model_folder), *flags)
        return server.url, server.tenant("Alice").key

    plain = (real.platform.url, real.alice.key)
    tools = platform("real-tools", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    return Replay({
        "render": plain,
        "coupled": plain,
        "render-tools": tools,
        "coupled-tools": tools,
        "coupled-ids": platform("real-ids", "--return-tokens-as-token-ids"),
        "plain": platform("real-closed", "--no-scale-out"),
        "tokens-only": (real.node.url, NODE_SECRET),
    })


@pytest.mark.parametrize("case", CASES)
def test_recorded(case: str, replayer: Replay) -> None:
    unexplained = [found for found in replayer.differences(case) if not any(matches(entry, case, found[0]) for entry in ON_PURPOSE)]
    assert not unexplained, "\n".join(f"{at}: recorded {want!r:.200}, ours {got!r:.200}" for at, want, got in unexplained)


@pytest.mark.parametrize("entry", ON_PURPOSE, ids=lambda entry: entry["case"] + entry["at"])
def test_a_difference_on_purpose_still_occurs(entry: dict[str, str], replayer: Replay) -> None:
    cases = [case for case in CASES if fnmatch.fnmatch(case, entry["case"])]
    assert any(matches(entry, case, at) for case in cases for at, _, _ in replayer.differences(case))


def matches(entry: dict[str, str], case: str, at: str) -> bool:
    return fnmatch.fnmatch(case, entry["case"]) and fnmatch.fnmatch(at, entry["at"])
