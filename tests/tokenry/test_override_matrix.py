"""The override rule on every path: {tenant's default} x {server's flag} x {request} x {path}, each cell with its token strings, bytes,
logprobs and content. And the proof that these tests can fail: with a merge that forgets the logprob settings, the derender cells do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from inference.derender import text_writer
from inference.generated import GenerateAnswer
from inference.model import ServedModel
from inference.protocol import codec
from inference.protocol.engine import EngineOutput, Sampling
from inference.protocol.generate import GenerateRequest
from inference.resolve import Layer
from tests.conftest import Scene
from tests.contract.targets import Targets
from tests.inference.samples import E_IDS, OVERRIDES, derendered, model
from tests.tokenry.override_paths import COUPLED, DERENDER, EXPECTED, FIELD, ROWS, SESSIONS, TEXT_MODE, Caller, OverHttp, Path, right
from tests.world import Server, World

FLAGS = {"flag-off": False, "flag-on": True}
TENANTS = {"inherit": None, "no": False, "yes": True}


@pytest.fixture(scope="module")
def platforms(world: World, scripted: Scene) -> dict[bool, Server]:
    """By their own default for the field."""
    return {False: scripted.platform, True: Targets(world, direct=False).platform("ids")}


@pytest.fixture(scope="module")
def nodes(world: World, scripted: Scene) -> dict[bool, Server]:
    return {False: scripted.node, True: Targets(world, direct=True).node("G!")}


def name_of(path: Path) -> str:
    return getattr(path, "__name__", str(path))


@pytest.mark.parametrize("override", OVERRIDES.values(), ids=OVERRIDES)
@pytest.mark.parametrize("default", TENANTS.values(), ids=TENANTS)
@pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("path", [*COUPLED, *DERENDER, *SESSIONS], ids=name_of)
def test_request_over_tenant_over_server(platforms: dict[bool, Server], path: Path, flag: bool, default: Any, override: Any) -> None:
    shown = path(tenant_of(platforms[flag], default), override)
    assert right(path, shown, placeholders=first_set(override, default, flag)), shown


@pytest.mark.parametrize("override", OVERRIDES.values(), ids=OVERRIDES)
@pytest.mark.parametrize("default", TENANTS.values(), ids=TENANTS)
@pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("path", TEXT_MODE, ids=name_of)
def test_text_mode_knows_the_default_alone(platforms: dict[bool, Server], path: Path, flag: bool, default: Any, override: Any) -> None:
    shown = path(tenant_of(platforms[flag], default), override)
    assert right(path, shown, placeholders=first_set(default, flag)), shown


@pytest.mark.parametrize("override", OVERRIDES.values(), ids=OVERRIDES)
@pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("path", [path for path in EXPECTED if name_of(path).startswith("generate")], ids=name_of)
def test_at_a_node_there_is_no_tenant(nodes: dict[bool, Server], path: Path, flag: bool, override: Any) -> None:
    shown = path(OverHttp(nodes[flag].node_client), override)
    expected = flag if path in TEXT_MODE else first_set(override, flag)
    assert right(path, shown, placeholders=expected), shown


def tenant_of(platform: Server, default: Any) -> Caller:
    assignments = () if default is None else (f"{FIELD}={json.dumps(default)}",)
    return OverHttp(platform.tenant(f"Default {default}", *assignments).http)


def first_set(*values: Any) -> bool:
    return next(value for value in values if isinstance(value, bool))


# ---- the negative control: the same cells in this process, where a fault can be planted

class InProcess:
    """A platform's derender endpoints and generate door as function calls."""

    def __init__(self, flag: bool, default: Any) -> None:
        self.model: ServedModel = model("R!" if flag else "R")
        self.layers = () if default is None else (Layer("tenant", {FIELD: default}),)
        self.as_ids = first_set(default, flag)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/generate"):
            return self.generate(body)[-1]
        return derendered(self.model, body, "chat" if "chat" in path else "completion", self.layers)

    def events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        return self.generate(body)[:-1]

    def frames(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        raise NotImplementedError("coupled sockets have no part in this")

    def session(self, original: dict[str, Any]) -> list[dict[str, Any]]:
        raise NotImplementedError("over WebSockets only")

    def generate(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The chunks, then the whole answer."""
        request = codec.decode(GenerateRequest, json.dumps(body).encode())
        sampling = Sampling(logprobs=2, eos_token_ids=(258,))
        writer = text_writer(request, sampling, self.model, as_ids=self.as_ids)
        answer = GenerateAnswer(request, self.model, "r", n=1, writer=writer)
        made = [chunk for output in outputs() for chunk in answer.feed(output)]
        return [json.loads(codec.encode(each)) for each in (*made, answer.whole())]


def outputs() -> Iterator[EngineOutput]:
    for at, token_id in enumerate(E_IDS):
        reason = "stop" if at == len(E_IDS) - 1 else None
        news = {"index": 0, "token_ids": [token_id], "rows": [ROWS[at]], "finish_reason": reason}
        yield codec.convert(EngineOutput, {"id": "r", "choices": [news], "finished": reason is not None})


CELLS = [(path, flag, default, override) for path in DERENDER for flag in FLAGS.values() for default in TENANTS.values()
         for override in OVERRIDES.values()]  # fmt: skip


def wrong_cells() -> list[Any]:
    return [
        (path, flag, default, override)
        for path, flag, default, override in CELLS
        if not right(path, path(InProcess(flag, default), override), placeholders=first_set(override, default, flag))
    ]


def test_in_process_every_derender_cell_is_right() -> None:
    assert not wrong_cells()


def test_with_a_merge_that_forgets_logprob_settings_the_derender_cells_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: only what shapes text is merged. Wrong is then every cell where an override differs from the default under it, no other."""
    import inference.derender.writer as writer
    import inference.render as render

    merged, read = render.settings, writer.read_context

    def text_only(request: Any) -> dict[str, Any]:
        return {name: value for name, value in merged(request).items() if name != FIELD}

    def without_override(request: Any, served: ServedModel) -> Any:
        context = read(request, served)
        context.return_tokens_as_token_ids = None
        return context

    monkeypatch.setattr(render, "settings", text_only)
    monkeypatch.setattr(writer, "read_context", without_override)
    decisive = [cell for cell in CELLS if isinstance(cell[3], bool) and cell[3] is not first_set(cell[2], cell[1])]
    assert wrong_cells() == decisive
    assert {path for path, *_ in decisive} == set(DERENDER)
