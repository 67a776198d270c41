"""Every operation that there is, called with another tenant's ids: nothing of that tenant is seen, and nothing of it moves.

The operations come out of the URL patterns, the consumers' paths and the OpenAPI schema: one that is not in the tables below fails here
until somebody has thought about it. The admin has tests of its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml
from websockets.sync.client import connect

from tests.conftest import Scene
from tests.people import Person, make_people
from tests.world import Tenant, script

HI = [{"role": "user", "content": "Hi"}]
IDS = {"token_ids": [72, 105], "sampling_params": {"max_tokens": 4}}
QUICK = {"max_tokens": 4, **script({"ids": [72], "finish": "stop"})}
SLOW = {"max_tokens": 400, **script(*[{"ids": [97], "wait_ms": 20}] * 200, {"ids": [258]})}
GENERATED = {"request_id": "r", "choices": [{"index": 0, "token_ids": [72], "finish_reason": "stop"}]}

# (method, path): what is asked and how it must be answered, as (path, body, status). {names} are the other tenant's, see `Other.names`.
OWN_KEY: dict[tuple[str, str], list[tuple[str, Any, int]]] = {
    ("GET", "/v1/keys"): [("/v1/keys", None, 200), ("/v1/keys?after={key}", None, 404)],
    ("POST", "/v1/keys"): [("/v1/keys", {"name": "other"}, 201)],  # with the other's Idempotency-Key
    ("GET", "/v1/keys/{public_id}"): [("/v1/keys/{key}", None, 404)],
    ("DELETE", "/v1/keys/{public_id}"): [("/v1/keys/{key}", None, 404)],
    ("POST", "/v1/keys/{public_id}/rotate"): [("/v1/keys/{key}/rotate", {}, 404)],
    ("GET", "/v1/usage"): [
        ("/v1/usage?by=day,key,model", None, 200), ("/v1/usage?by=key&key={key}", None, 200),
        ("/v1/usage?by=key&after={cursor}", None, 200)],
    ("GET", "/v1/usage/requests"): [
        ("/v1/usage/requests", None, 200), ("/v1/usage/requests?key={key}", None, 200), ("/v1/usage/requests?after={entry}", None, 200)],
    ("GET", "/v1/usage/export"): [("/v1/usage/export", None, 200), ("/v1/usage/export?key={key}", None, 200)],
    ("GET", "/v1/defaults"): [("/v1/defaults?model=m", None, 200)],
    ("GET", "/v1/models"): [("/v1/models", None, 200)],
    ("GET", "/v1/scale_out/capabilities"): [("/v1/scale_out/capabilities", None, 200)],
    ("POST", "/v1/responses/render"): [("/v1/responses/render", {"input": "Hi"}, 501)],
    ("POST", "/v1/messages/render"): [("/v1/messages/render", {"messages": HI}, 501)],
    ("POST", "/v1/tickets"): [("/v1/tickets", {}, 200)],
    ("POST", "/v1/chat/completions"): [("/v1/chat/completions", {"messages": HI, **QUICK}, 200)],
    ("POST", "/v1/completions"): [("/v1/completions", {"prompt": "Hi", **QUICK}, 200)],
    ("POST", "/v1/chat/completions/render"): [("/v1/chat/completions/render", {"messages": HI, **QUICK}, 200)],
    ("POST", "/v1/completions/render"): [("/v1/completions/render", {"prompt": "Hi"}, 200)],
}  # fmt: skip
# By a key that may use no model: the other tenant's `m` does not exist.
SHUT_KEY: dict[tuple[str, str], list[tuple[str, Any, int]]] = {
    ("GET", "/v1/models"): [("/v1/models", None, 200)],
    ("GET", "/v1/models/{name}"): [("/v1/models/m", None, 404)],
    ("GET", "/v1/defaults"): [("/v1/defaults?model=m", None, 404), ("/v1/defaults", None, 404)],
    ("POST", "/v1/tickets"): [("/v1/tickets", {"model": "m"}, 404)],
    ("POST", "/tokenize"): [("/tokenize", {"model": "m", "prompt": "Hi"}, 404), ("/tokenize", {"prompt": "Hi"}, 404)],
    ("POST", "/detokenize"): [("/detokenize", {"model": "m", "tokens": [72]}, 404)],
    ("POST", "/v1/chat/completions"): [("/v1/chat/completions", {"model": "m", "messages": HI, **QUICK}, 404)],
    ("POST", "/v1/completions"): [("/v1/completions", {"model": "m", "prompt": "Hi", **QUICK}, 404)],
    ("POST", "/v1/chat/completions/render"): [("/v1/chat/completions/render", {"model": "m", "messages": HI}, 404)],
    ("POST", "/v1/completions/render"): [("/v1/completions/render", {"model": "m", "prompt": "Hi"}, 404)],
    ("POST", "/v1/chat/completions/derender"): [("/v1/chat/completions/derender", {"model": "m", "generate_response": GENERATED}, 404)],
    ("POST", "/v1/completions/derender"): [("/v1/completions/derender", {"model": "m", "generate_responses": [GENERATED]}, 404)],
    ("POST", "/inference/v1/generate"): [("/inference/v1/generate", {"model": "m", **IDS}, 404), ("/inference/v1/generate", IDS, 404)],
}
# By a person of the tenant.
PERSON: dict[tuple[str, str], list[tuple[str, Any, int]]] = {
    ("GET", "/playground/"): [("/playground/", None, 200)],
    ("POST", "/playground/ticket"): [("/playground/ticket", {"key": "{key}"}, 404)],
    ("GET", "/playground/defaults"): [("/playground/defaults?key={key}&model=m", None, 404)],
    ("POST", "/playground/tokens"): [("/playground/tokens", {"key": "{key}", "model": "m"}, 404)],
    ("GET", "/usage/"): [("/usage/", None, 200), ("/usage/?tenant={tenant}", None, 404), ("/usage/?key={key}", None, 200)],
    ("GET", "/usage/export"): [("/usage/export?tenant={tenant}", None, 404), ("/usage/export?key={key}", None, 200)],
}
# By nobody: they know of no tenant.
OPEN = {("GET", path) for path in ("/healthz", "/health", "/ping", "/version", "/readyz", "/metrics", "/schema", "/docs/")}
ELSEWHERE = {
    ("GET", "/"),  # the admin's front page: tests/tenants/test_admin_isolation.py
    ("POST", "/inference/v1/abort_requests"), ("SOCKET", "/v1/chat/completions"), ("SOCKET", "/v1/completions"),  # below
    ("SOCKET", "/v1/derender/session"),
}  # fmt: skip


@dataclass(frozen=True)
class Other:
    """A tenant with a past: keys, requests, defaults."""

    tenant: Tenant
    key: str
    entry: str
    cursor: str

    @property
    def names(self) -> dict[str, str]:
        return {"key": self.key, "entry": self.entry, "cursor": self.cursor, "tenant": self.tenant.id}

    def fill(self, asked: str) -> str:
        for name, value in self.names.items():
            asked = asked.replace(f"{{{name}}}", value)
        return asked


@dataclass(frozen=True)
class Mine:
    own: httpx.Client
    shut: httpx.Client
    person: Person


def key_of(scene: Scene, name: str) -> str:
    scopes = [part for scope in ("inference", "usage:read", "keys:manage") for part in ("--scope", scope)]
    made: str = json.loads(scene.platform.manage("create_key", name, *scopes, "--json"))["key"]
    return made


@pytest.fixture(scope="module")
def other(scripted: Scene) -> Other:
    tenant = scripted.platform.tenant("Zanzibar", 'stop=["zanzibar mark"]')
    manager = Tenant("Zanzibar", tenant.id, key_of(scripted, "Zanzibar"), tenant.url)
    manager.http.post("/v1/keys", json={"name": "key of Zanzibar"}, headers={"Idempotency-Key": "zanzibar once"})
    for door in (tenant, manager):
        answer = door.http.post("/v1/chat/completions", json={"messages": HI, **QUICK}, headers={"x-request-id": "zanzibar-request"})
        assert answer.status_code == 200
    page: dict[str, Any] = {"data": []}
    while len([row for row in page["data"] if row["status"] == "completed"]) < 2:
        page = manager.http.get("/v1/usage/requests").json()
    cursor = manager.http.get("/v1/usage?by=key&limit=1").json()["after"]
    return Other(tenant, tenant.key.split("_")[1], page["data"][0]["id"], cursor)


@pytest.fixture(scope="module")
def mine(scripted: Scene) -> Mine:
    tenant = scripted.platform.tenant("Mine")
    tenant.http.post("/v1/chat/completions", json={"messages": HI, **QUICK})
    own = Tenant("Mine", tenant.id, key_of(scripted, "Mine"), tenant.url)
    shut = own.http.post("/v1/keys", json={"name": "shut", "allowed_models": []}).json()["key"]
    [person] = make_people(scripted.platform, ("mine-owner", "Mine", "owner"))
    return Mine(own.http, Tenant("Mine", tenant.id, shut, tenant.url).http, person)


@pytest.fixture
def untouched(scripted: Scene, other: Other) -> Iterator[None]:
    """The other tenant's key works after it as it did before, and says what it said."""
    before = other.tenant.http.get("/v1/defaults").json()
    yield
    assert other.tenant.http.post("/v1/chat/completions", json={"messages": HI, **QUICK}).status_code == 200
    assert other.tenant.http.get("/v1/defaults").json() == before


def operations() -> set[tuple[str, str]]:
    """(method, path) of everything that a platform process answers to."""
    from tokenry.asgi import PLATFORM_HTTP, PLATFORM_SOCKETS
    from tokenry.urls import urlpatterns

    found = {("SOCKET", path) for path in PLATFORM_SOCKETS}
    found |= {(method, path) for path, app in PLATFORM_HTTP.items() for method in app.consumer_class.methods}  # type: ignore[attr-defined]
    for pattern in urlpatterns:
        path = "/" + str(pattern.pattern).replace("<str:", "{").replace("<path:", "{").replace(">", "}")
        if path != "/admin/":
            found |= {(method, path) for method in methods(pattern.callback)}
    return found


def methods(view: Any) -> list[str]:
    kind = getattr(view, "view_class", getattr(view, "cls", None))
    if kind is None:
        return ["GET"]
    names = ("get", "post", "put", "patch", "delete")
    declared = [name for name in names if any(name in vars(each) for each in kind.__mro__)]
    return ["GET"] if kind.__name__ == "RedirectView" else [name.upper() for name in declared]


def test_every_operation_is_in_a_table(scripted: Scene) -> None:
    known = {*OWN_KEY, *SHUT_KEY, *PERSON, *OPEN, *ELSEWHERE}
    assert operations() == known
    schema = yaml.safe_load(scripted.platform.node_client.get("/schema").text)
    described = {(method.upper(), path) for path, item in schema["paths"].items() for method in item}
    assert described <= known


def cases(table: dict[tuple[str, str], list[tuple[str, Any, int]]]) -> list[tuple[str, str, Any, int]]:
    return [(method, path, body, status) for (method, _), asked in table.items() for path, body, status in asked]


def check(response: httpx.Response, other: Other, status: int) -> None:
    """No id of the other tenant, and nothing with its name in it: its keys', its request ids, its defaults."""
    assert response.status_code == status, response.text
    told = response.text + str(response.headers)
    assert not any(trace in told for trace in (other.key, other.entry, "anzibar")), told


@pytest.mark.parametrize(("method", "path", "body", "status"), cases(OWN_KEY))
def test_by_the_other_tenants_ids(mine: Mine, other: Other, untouched: None, method: str, path: str, body: Any, status: int) -> None:
    headers = {"Idempotency-Key": "zanzibar once"} if path == "/v1/keys" else {}
    response = mine.own.request(method, other.fill(path), json=body, headers=headers)
    check(response, other, status)
    if "?key=" in path or "&key=" in path:
        rows = response.json()["data"] if "json" in response.headers["content-type"] else response.text.splitlines()[1:]
        assert rows == []


@pytest.mark.parametrize(("method", "path", "body", "status"), cases(SHUT_KEY))
def test_by_the_other_tenants_models(mine: Mine, other: Other, method: str, path: str, body: Any, status: int) -> None:
    response = mine.shut.request(method, path, json=body)
    check(response, other, status)
    if status == 404:
        assert response.json()["error"]["param"] == "model"
    else:
        assert response.json()["data"] == []


@pytest.mark.parametrize(("method", "path", "body", "status"), cases(PERSON))
def test_by_a_person(mine: Mine, other: Other, untouched: None, method: str, path: str, body: Any, status: int) -> None:
    filled = {name: other.fill(value) for name, value in body.items()} if body is not None else None
    response = mine.person.http.get(other.fill(path)) if method == "GET" else mine.person.send(path, filled)
    assert response.status_code == status
    assert "anzibar" not in response.text
    assert other.entry not in response.text
    if path != "/usage/?key={key}":  # its form says again what was asked
        assert other.key not in response.text


@pytest.mark.parametrize(("method", "path"), sorted(OPEN))
def test_by_nobody(scripted: Scene, other: Other, method: str, path: str) -> None:
    check(httpx.request(method, scripted.platform.url + path), other, 200)


def test_a_request_of_the_other_is_not_aborted(mine: Mine, other: Other) -> None:
    """By any spelling of its id, the node's own with the other's prefix included."""
    done: list[httpx.Response] = []
    body = {"messages": HI, **SLOW}
    work = threading.Thread(
        target=lambda: done.append(other.tenant.http.post("/v1/chat/completions", json=body, headers={"x-request-id": "long"})))
    work.start()
    for prefix in ("", "generate-tokens-", f"{other.tenant.id}.", f"generate-tokens-{other.tenant.id}."):
        mine.own.post("/inference/v1/abort_requests", json={"request_ids": [f"{prefix}chatcmpl-long", f"{prefix}chatcmpl-long-0"]})
    work.join()
    assert done[0].json()["choices"][0]["finish_reason"] == "stop"
    assert done[0].json()["usage"]["completion_tokens"] == 201


@pytest.mark.parametrize(("path", "asked"), [("/v1/chat/completions", {"messages": HI}), ("/v1/completions", {"prompt": "Hi"})])
def test_sockets(scripted: Scene, mine: Mine, other: Other, path: str, asked: dict[str, Any]) -> None:
    """The other's stream ids mean nothing on my connection; its model does not exist for my key; a ticket is good for one socket."""
    url = scripted.platform.url.replace("http", "ws") + path
    with (
        connect(url, additional_headers=other.tenant.headers) as theirs,
        connect(url, additional_headers={"Authorization": mine.own.headers["Authorization"]}) as own,
        connect(url, additional_headers={"Authorization": mine.shut.headers["Authorization"]}) as shut,
    ):
        theirs.send(json.dumps({"type": "create", "stream_id": "s", "request": {**asked, **SLOW}}))
        theirs.recv(timeout=20)
        own.send(json.dumps({"type": "cancel", "stream_id": "s"}))
        shut.send(json.dumps({"type": "create", "stream_id": "s", "request": {**asked, **QUICK, "model": "m"}}))
        refused = json.loads(shut.recv(timeout=20))
        assert (refused["type"], refused["error"]["code"], refused["error"]["param"]) == ("error", 404, "model")
        last = {}
        while last.get("type") not in ("done", "error"):
            last = json.loads(theirs.recv(timeout=20))
    assert (last["type"], last["usage"]["completion_tokens"]) == ("done", 201)


def test_derender_sessions(scripted: Scene, mine: Mine, other: Other) -> None:
    """The other's session of the same name is not there on my socket, and closing mine leaves theirs."""
    url = scripted.platform.url.replace("http", "ws") + "/v1/derender/session"
    opening = {"type": "open", "session_id": "s", "chat_request": {"messages": HI, "stream": True}, "prompt_token_ids": [72]}

    def ask(socket: Any, frame: dict[str, Any]) -> dict[str, Any]:
        socket.send(json.dumps(frame))
        answer: dict[str, Any] = json.loads(socket.recv(timeout=20))
        return answer

    with (
        connect(url, additional_headers=other.tenant.headers) as theirs,
        connect(url, additional_headers={"Authorization": mine.own.headers["Authorization"]}) as own,
        connect(url, additional_headers={"Authorization": mine.shut.headers["Authorization"]}) as shut,
    ):
        assert ask(theirs, opening)["type"] == "opened"
        for frame in ("state", "close"):
            assert ask(own, {"type": frame, "session_id": "s"})["error"]["code"] == 404
        assert ask(shut, {**opening, "model": "m"})["error"]["param"] == "model"
        assert ask(theirs, {"type": "state", "session_id": "s"})["type"] == "state"
