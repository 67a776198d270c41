"""One small world that all tests share: two tenants, one platform with a scripted node, one with the real model.

Everything is started when a test first asks for it, and ended when the session ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.world import Server, Tenant, World
from tokenry.model_store import ModelMissing, find_model

pytest_plugins = ["tests.stores"]

WORLD = pytest.StashKey[World]()
DEFAULT_MODEL = "smollm2"


@dataclass(frozen=True)
class Scene:
    """A platform, the node behind it, and two tenants: Alice has no defaults, Bob has some."""

    platform: Server
    node: Server
    alice: Tenant
    bob: Tenant


def scene(platform: Server, node: Server) -> Scene:
    return Scene(platform, node, platform.tenant("Alice"), platform.tenant("Bob", "return_tokens_as_token_ids=true"))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[World]:
    """Starts servers, for the tests that need one of their own."""
    world = request.config.stash[WORLD] = World(tmp_path_factory.mktemp("world"))
    yield world
    world.stop()


@pytest.fixture(scope="session")
def scripted(world: World) -> Scene:
    """Exact answers: tokenizer t1, served as `m`, 512 tokens, the engine replays the script in the request."""
    node = world.scripted_node("node")
    return scene(world.scripted_platform("platform", node), node)


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The default model, which `make test` has pulled."""
    try:
        return find_model(DEFAULT_MODEL)
    except ModelMissing as exc:
        pytest.fail(str(exc))


@pytest.fixture(scope="session")
def real(world: World, model_folder: Path) -> Scene:
    """The default model, served as `smollm2` with 2048 tokens; one load for the whole session. The node knows no tokenizer."""
    flags = model_flags(model_folder)
    node = world.serve("real-node", "--role", "generate", "--tokens-only", *flags, seconds=180)
    return scene(world.serve("real", "--role", "platform", "--node", node.url, *flags), node)


def model_flags(model_folder: Path) -> tuple[str, ...]:
    return ("--model", str(model_folder), "--served-model-name", DEFAULT_MODEL, "--max-model-len", "2048")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A failing test shows what its servers wrote."""
    report = yield
    world = item.config.stash.get(WORLD, None)
    if report.failed and world is not None:
        for server in world.servers.values():
            report.sections.append((f"log of {server.name} (last lines)", server.log_tail()))
    return report
