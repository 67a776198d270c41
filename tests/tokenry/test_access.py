"""Who may come in, what they see, and that every answer has the one error shape."""

from __future__ import annotations

import concurrent.futures
import time

import pytest

from tests.conftest import Scene
from tests.world import script

HI = {"messages": [{"role": "user", "content": "Hi"}]}
POSTS = [
    "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/render", "/v1/completions/render", "/v1/chat/completions/derender",
    "/v1/completions/derender", "/inference/v1/generate", "/inference/v1/abort_requests", "/tokenize", "/detokenize", "/v1/tickets",
]  # fmt: skip
GETS = ["/v1/models", "/v1/models/m", "/v1/defaults"]
WRONG = [None, "", "nonsense", "Basic abc", "Bearer", "Bearer sk-openai", "Bearer tk_unknown0_" + "x" * 43]


@pytest.mark.parametrize("authorization", WRONG)
@pytest.mark.parametrize(("method", "path"), [*(("POST", p) for p in POSTS), *(("GET", p) for p in GETS)])
def test_without_a_good_key_everything_gives_one_answer(scripted: Scene, method, path, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    client = scripted.platform.node_client
    response = client.request(method, path, json=HI if method == "POST" else None, headers={"Authorization": "", **headers})
    assert response.status_code == 401
    one_answer = {"message": "Incorrect API key provided.", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
    assert response.json()["error"] == one_answer


def test_a_key_with_the_wrong_secret_gives_the_same_answer(scripted: Scene):
    forged = scripted.alice.key[:-4] + "AAAA"
    headers = {"Authorization": f"Bearer {forged}"}
    response = scripted.platform.node_client.post("/v1/chat/completions", json=HI, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/v1/nope", 404), ("POST", "/v1/chat/completions/", 404), ("GET", "/nope", 404), ("GET", "/v1/chat/completions/render", 405),
    ("DELETE", "/v1/models", 405), ("GET", "/v1/chat/completions", 405), ("GET", "/v1/models/nope", 404),
    ("GET", "/v1/defaults?model=nope", 404),
])  # fmt: skip
def test_errors_of_routing_are_json_too(scripted: Scene, method, path, status):
    response = scripted.alice.http.request(method, path)
    assert response.status_code == status
    error = response.json()["error"]
    assert (error["code"], sorted(error)) == (status, ["code", "message", "param", "type"])


@pytest.mark.parametrize("accept", ["text/event-stream", "text/html", "application/json", "*/*"])
def test_any_accept_is_served(scripted: Scene, accept):
    assert scripted.alice.http.get("/v1/models", headers={"Accept": accept}).status_code == 200


def test_models(scripted: Scene):
    listed = scripted.alice.http.get("/v1/models").json()
    assert [(card["id"], card["max_model_len"]) for card in listed["data"]] == [("m", 512)]
    assert scripted.alice.http.get("/v1/models/m").json()["id"] == "m"


def test_defaults_are_each_tenants_own(scripted: Scene):
    shown = [tenant.http.get("/v1/defaults").json()["fields"]["return_tokens_as_token_ids"] for tenant in (scripted.alice, scripted.bob)]
    assert shown == [{"value": False, "source": "builtin"}, {"value": True, "source": "tenant"}]


def test_health_needs_no_key(scripted: Scene):
    client = scripted.platform.node_client
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["checks"] == {"database": True, "nodes": True}
    assert b"python_info" in client.get("/metrics").content


def test_a_node_wants_its_secret(scripted: Scene):
    body = {"token_ids": [72], "sampling_params": {}}
    node = scripted.node.node_client
    assert node.post("/inference/v1/generate", json=body, headers=scripted.alice.headers).status_code == 401
    assert node.post("/inference/v1/generate", json=body).status_code == 200
    assert node.get("/v1/nope").status_code == 404
    assert node.get("/admin/").status_code == 404


def test_one_tenant_cannot_abort_another(scripted: Scene):
    """Both use the same request id; Bob's abort leaves Alice's request alone."""
    slow = script(*[{"ids": [97], "wait_ms": 20}] * 40, {"ids": [258]})

    def run(tenant):
        return tenant.http.post("/v1/chat/completions", json={**HI, "max_tokens": 100, **slow}, headers={"x-request-id": "same"}).json()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        alice, bob = pool.submit(run, scripted.alice), pool.submit(run, scripted.bob)
        time.sleep(0.3)
        aborted = scripted.bob.http.post("/inference/v1/abort_requests", json={"request_ids": ["generate-tokens-chatcmpl-same"]})
        assert (aborted.status_code, aborted.content) == (200, b"")
        assert bob.result()["choices"][0]["finish_reason"] == "abort"
        assert alice.result()["choices"][0]["finish_reason"] == "stop"
    assert alice.result()["id"] == bob.result()["id"] == "chatcmpl-same"
