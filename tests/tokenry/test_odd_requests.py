"""Requests that no client should send, to every endpoint with a body: a 4xx in the one error shape each, and the next request works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Scene

GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
    "/v1/chat/completions/render": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions/render": {"prompt": "Hi"},
    "/v1/chat/completions/derender": {"generate_response": {"choices": [{"index": 0, "token_ids": [72]}]}},
    "/v1/completions/derender": {"generate_responses": [{"choices": [{"index": 0, "token_ids": [72]}]}]},
    "/inference/v1/generate": {"token_ids": [72], "sampling_params": {"max_tokens": 1}},
    "/inference/v1/abort_requests": {"request_ids": ["nobody"]},
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [72]},
    "/v1/tickets": {},
}
AT_NODES = ("/inference/v1/generate", "/inference/v1/abort_requests")
PLACES = [*(("platform", path) for path in GOOD), *(("node", path) for path in AT_NODES)]
JSON = {"Content-Type": "application/json"}
NO_OBJECTS = {
    "nothing": b"", "white space": b"  ", "half": b'{"a": ', "a list": b"[1]", "null": b"null", "a number": b"1", "two": b"{} {}",
    "a byte order mark": b"\xef\xbb\xbf{}", "UTF-16": "{}".encode("utf-16"), "NaN": b'{"a": NaN}', "single quotes": b"{'a': 1}",
    "half a surrogate pair": b'{"\\ud800": 1}', "100,000 open brackets": b'{"a":' + b"[" * 100_000,
    "3,000 levels": b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}",
}  # fmt: skip


@pytest.fixture(params=PLACES, ids=lambda place: " ".join(place))
def door(request: pytest.FixtureRequest, scripted: Scene) -> Iterator[tuple[httpx.Client, str]]:
    """A client and a path; afterwards a good request still works there."""
    at, path = request.param
    client = scripted.alice.http if at == "platform" else scripted.node.node_client
    yield client, path
    assert client.post(path, json=GOOD[path]).status_code == 200


def refused(response: httpx.Response, status: int) -> None:
    assert response.status_code == status, response.text[:300]
    error = response.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert 0 < len(error["message"]) < 700


def test_bodies_that_are_no_object(door: tuple[httpx.Client, str]) -> None:
    client, path = door
    for body in NO_OBJECTS.values():
        refused(client.post(path, content=body, headers=JSON), 400)


def test_other_content_types(door: tuple[httpx.Client, str]) -> None:
    client, path = door
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json5", "", "\xff"):
        refused(client.post(path, content=b"{}", headers={"Content-Type": kind.encode("latin-1")}), 400)
    refused(client.post(path, content=b"{}"), 400)
    accepted = client.post(path, content=httpx.Request("POST", "http://x", json=GOOD[path]).content,
                           headers={"Content-Type": "Application/JSON ; charset=utf-8"})
    assert accepted.status_code == 200


def test_other_methods(door: tuple[httpx.Client, str]) -> None:
    client, path = door
    for method in ("GET", "PUT", "DELETE", "PATCH", "TRACE"):
        refused(client.request(method, path), 405)
    assert client.head(path).status_code == 405


def test_bodies_over_the_limit(door: tuple[httpx.Client, str]) -> None:
    """With their length said, and without."""
    client, path = door
    pieces = (b" " * 1_000_000 for _ in range(20))
    for body in (b" " * 20_000_000, pieces):
        response = client.post(path, content=body, headers=JSON)
        refused(response, 413)
        assert response.json()["error"]["code"] == "request_too_large"


def test_odd_headers_and_queries_change_nothing(door: tuple[httpx.Client, str]) -> None:
    client, path = door
    for headers in (
        {"X-Request-Id": "x" * 5000}, {"X-Request-Id": b"caf\xe9"}, {"X-Request-Id": ""}, {"X-Request-Id": 'a"b\\c{}<>'},
        {"X-Filler": "y" * 60_000}, {"X-Tokenry-Explain": "yes"}, {"Accept": "text/html"}, {"Origin": "http://elsewhere.example"},
    ):  # fmt: skip
        assert client.post(path, json=GOOD[path], headers=headers).status_code == 200
    assert client.post(path + "?model=nope&stream=true&%ff=%00", json=GOOD[path]).status_code == 200


def test_an_id_that_is_unfit_for_a_header_is_not_repeated(scripted: Scene) -> None:
    for given in (b"x" * 5000, b"caf\xe9", b""):
        response = scripted.alice.http.post("/tokenize", json={"prompt": "Hi"}, headers={"X-Request-Id": given})
        assert response.headers["x-request-id"].isalnum()
        assert len(response.headers["x-request-id"]) == 16


def test_of_two_equal_keys_the_last_counts(scripted: Scene) -> None:
    body = b'{"prompt": "Hi", "model": "nope", "model": "m"}'
    assert scripted.alice.http.post("/tokenize", content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models/%00", "/v1/models/%ff%fe", "//v1//models", "/v1/models/" + "a" * 60_000, "/v1/%2e%2e/admin/"])
def test_odd_paths(scripted: Scene, path: str) -> None:
    refused(scripted.alice.http.get(path), 404)
