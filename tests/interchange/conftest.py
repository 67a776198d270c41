"""Real vLLM servers beside ours. Opt-in: TOKENRY_VLLM names the Python of an environment that has vLLM (`make bench-peers` makes one)."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from tests.conftest import DEFAULT_MODEL, Scene, scene
from tests.interchange.service import Service
from tests.world import NODE_SECRET, Server, World, environment, free_port, start

MARKER = "interchange: our servers and a real vLLM's in one pipeline; needs TOKENRY_VLLM"
START_SECONDS = 280  # below pytest's faulthandler_timeout
NODES = {"tokens-only": "--tokens-only", "scale-out": "--enable-scale-out"}
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interchange)


@pytest.fixture(scope="session")
def vllm_python() -> str:
    python = os.environ.get("TOKENRY_VLLM", "")
    if not python:
        pytest.skip("TOKENRY_VLLM is not set: no real vLLM to exchange with (docs/interchange.md)")
    if not Path(python).is_file():
        pytest.fail(f"TOKENRY_VLLM names no file: {python}")
    return str(Path(python).absolute())


class Vllm:
    """Starts vLLM's servers on first use; they end with the world."""

    def __init__(self, python: str, world: World, model: Path) -> None:
        self.python = python
        self.world = world
        self.model = model

    def node(self, kind: str) -> Server:
        """A generate node behind the same secret as ours."""
        return self.server(f"vllm-{kind}", ("serve",), NODES[kind], "--seed", "0", "--api-key", NODE_SECRET)

    def renderer(self) -> Server:
        return self.server("vllm-render", ("launch", "render"))

    def server(self, name: str, verb: tuple[str, ...], *flags: str) -> Server:
        if name in self.world.servers:
            return self.world.servers[name]
        home, port = self.world.folder / name, free_port()
        home.mkdir()
        common = ("--served-model-name", DEFAULT_MODEL, "--max-model-len", "2048", "--dtype", "float32")
        place = ("--host", "127.0.0.1", "--port", str(port), "--disable-uvicorn-access-log")
        command = [self.python, "-m", "vllm.entrypoints.cli.main", *verb, str(self.model), *flags, *common, *place]
        env = {**environment(home), "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        with (home / "serve.log").open("w") as log:
            process = start(command, env, log)
        server = self.world.servers[name] = Server(name, f"http://127.0.0.1:{port}", home, process, "/health")
        server.wait_until_ready(START_SECONDS)
        return server


@pytest.fixture(scope="session")
def vllm(vllm_python: str, world: World, model_folder: Path) -> Vllm:
    return Vllm(vllm_python, world, model_folder)


@pytest.fixture(scope="session", params=NODES)
def on_vllm(request: pytest.FixtureRequest, vllm: Vllm, world: World) -> Scene:
    """Our platform, its tenants, and a vLLM node instead of one of ours."""
    node = vllm.node(request.param)
    flags = ("--tokenizer", str(vllm.model), "--served-model-name", DEFAULT_MODEL, "--max-model-len", "2048")
    return scene(world.serve(f"platform-on-{node.name}", "--role", "platform", "--node", node.url, *flags), node)


class Services:
    """Everything that can do a step of the pipeline, by name; started when a test first asks, so that no test waits for all of them."""

    def __init__(self, real: Scene, vllm: Vllm) -> None:
        self.real = real
        self.vllm = vllm

    def __getitem__(self, name: str) -> Service:
        return Service(name, self.client(name))

    def client(self, name: str) -> httpx.Client:
        if name == "our platform":
            return self.real.alice.http
        if name == "our node":
            return self.real.node.node_client
        server = self.vllm.renderer() if name == "vLLM render" else self.vllm.node(name.removeprefix("vLLM "))
        return server.node_client


@pytest.fixture(scope="session")
def services(real: Scene, vllm: Vllm) -> Services:
    return Services(real, vllm)
