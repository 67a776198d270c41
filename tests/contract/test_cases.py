"""Every case of `run_cases.py` as a test of its own, over HTTP, against running processes with the scripted engine."""

from __future__ import annotations

import pytest

from tests.contract import run_cases
from tests.contract.targets import Targets
from tests.world import World

GENERATE_CASES = [name for name in run_cases.CASES if name.startswith(("F", "H4", "H5"))]


@pytest.fixture(scope="session")
def platform_targets(world: World) -> Targets:
    return Targets(world, direct=False)


@pytest.fixture(scope="session")
def node_targets(world: World) -> Targets:
    return Targets(world, direct=True)


@pytest.mark.parametrize("name", run_cases.CASES)
def test_case(name: str, platform_targets: Targets) -> None:
    check(name, platform_targets)


@pytest.mark.parametrize("name", GENERATE_CASES)
def test_case_at_the_node(name: str, node_targets: Targets) -> None:
    """The generate cases again, without a platform between."""
    check(name, node_targets)


def check(name: str, targets: Targets) -> None:
    run_cases.TARGETS = targets
    result, why = run_cases.run(name, *run_cases.CASES[name])
    if result == "skipped":
        pytest.skip(why)
    assert not run_cases.problems, "\n".join(run_cases.problems)
