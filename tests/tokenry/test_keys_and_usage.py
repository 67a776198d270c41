"""`/v1/keys` and `/v1/usage`: a tenant's own, and nobody else's."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.conftest import Scene
from tests.world import Tenant, script

PATH = "/v1/chat/completions"
QUICK = {"messages": [{"role": "user", "content": "Hi"}], **script({"ids": [72, 105], "finish": "stop"})}


@pytest.fixture(scope="module")
def manager(scripted: Scene) -> Tenant:
    """Alice's tenant by a key that may manage keys and read usage."""
    import json

    scopes = [part for scope in ("inference", "usage:read", "keys:manage") for part in ("--scope", scope)]
    made = json.loads(scripted.platform.manage("create_key", "Alice", *scopes, "--json"))
    return Tenant("Alice", scripted.alice.id, made["key"], scripted.platform.url)


def test_a_key_lives_and_dies(scripted: Scene, manager: Tenant):
    made = manager.http.post("/v1/keys", json={"name": "robot", "scopes": ["inference"]})
    assert made.status_code == 201
    key = made.json()
    assert (key["object"], key["name"], key["state"], key["scopes"]) == ("key", "robot", "active", ["inference"])
    robot = {"Authorization": f"Bearer {key['key']}"}
    assert httpx.post(manager.url + PATH, json=QUICK, headers=robot).status_code == 200
    assert httpx.get(manager.url + "/v1/keys", headers=robot).status_code == 403
    listed = manager.http.get("/v1/keys").json()["data"]
    assert key["id"] in [each["id"] for each in listed]
    assert "key" not in listed[0]
    rotated = manager.http.post(f"/v1/keys/{key['id']}/rotate", json={"grace_seconds": 60}).json()
    for text in (key["key"], rotated["key"]):
        assert httpx.post(manager.url + PATH, json=QUICK, headers={"Authorization": f"Bearer {text}"}).status_code == 200
    assert manager.http.delete(f"/v1/keys/{key['id']}").json()["state"] == "revoked"
    time.sleep(1)
    for text in (key["key"], rotated["key"]):
        assert httpx.post(manager.url + PATH, json=QUICK, headers={"Authorization": f"Bearer {text}"}).status_code == 401


def test_a_repeated_call_gives_the_same_key(manager: Tenant):
    ask = lambda name: manager.http.post("/v1/keys", json={"name": name}, headers={"Idempotency-Key": "once"})  # noqa: E731
    first, second, other = ask("a"), ask("a"), ask("b")
    assert first.json()["key"] == second.json()["key"]
    assert other.status_code == 409


@pytest.mark.parametrize(("body", "param"), [
    ({}, "body.name"), ({"name": 5}, "body.name"), ({"name": "a", "scopes": ["king"]}, "scopes"), ({"name": "a", "x": 1}, None),
    ({"name": "a", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"), ({"name": "a", "limits": {"nonsense": 1}}, None),
])  # fmt: skip
def test_a_bad_key_is_named(manager: Tenant, body, param):
    refused = manager.http.post("/v1/keys", json=body)
    assert refused.status_code == 400
    if param is not None:
        assert refused.json()["error"]["param"] == param


def test_another_tenants_key_does_not_exist(scripted: Scene, manager: Tenant):
    bobs = scripted.bob.key.split("_")[1]
    for method, path in (("GET", f"/v1/keys/{bobs}"), ("DELETE", f"/v1/keys/{bobs}"), ("POST", f"/v1/keys/{bobs}/rotate")):
        assert manager.http.request(method, path, json={} if method == "POST" else None).status_code == 404
    assert scripted.bob.http.post(PATH, json=QUICK).status_code == 200


def test_usage_adds_up_and_is_the_tenants_own(scripted: Scene):
    tenant = scripted.platform.tenant("user of things")
    for n in range(3):
        tenant.http.post(PATH, json=QUICK, headers={"x-request-id": f"mine-{n}"})
    end = time.monotonic() + 10
    while (sums := tenant.http.get("/v1/usage?by=model").json()["data"]) == [] or sums[0]["requests"] < 3:
        assert time.monotonic() < end
        time.sleep(0.2)
    assert [(row["model"], row["requests"], row["prompt_tokens"], row["completion_tokens"]) for row in sums] == [("m", 3, 63, 6)]
    rows = tenant.http.get("/v1/usage/requests?limit=2").json()
    assert [row["request_id"] for row in rows["data"]] == ["chatcmpl-mine-2", "chatcmpl-mine-1"]
    more = tenant.http.get(f"/v1/usage/requests?limit=2&after={rows['after']}").json()
    assert ([row["request_id"] for row in more["data"]], more["after"]) == (["chatcmpl-mine-0"], None)
    lines = tenant.http.get("/v1/usage/export").text.splitlines()
    assert len(lines) == 4


@pytest.mark.parametrize("query", ["by=nonsense", "since=yesterday", "limit=0", "limit=-1", "limit=x", "limit=99999999999", "after=%00"])
def test_a_bad_query_is_a_400(scripted: Scene, query):
    assert scripted.alice.http.get(f"/v1/usage?{query}").status_code == 400
