"""The WebSockets: many streams at once, cancel, tickets, and refusal at the upgrade."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.conftest import Scene
from tests.world import Tenant, script

HI = [{"role": "user", "content": "Hi"}]


@contextmanager
def socket(tenant: Tenant, path="/v1/chat/completions", **options):
    options = {"additional_headers": tenant.headers, **options}
    with connect(tenant.url.replace("http", "ws") + path, max_size=None, open_timeout=10, **options) as opened:
        yield opened


def create(stream_id, *steps, **fields):
    return json.dumps({"type": "create", "stream_id": stream_id, "request": {"messages": HI, **script(*steps), **fields}})


def frames(opened, *wanted):
    """Frames until every one of these streams has ended."""
    got, open_streams = [], set(wanted)
    while open_streams:
        frame = json.loads(opened.recv(timeout=20))
        got.append(frame)
        if frame["type"] in ("done", "error"):
            open_streams.discard(frame["stream_id"])
    return got


def text_of(got, stream_id):
    deltas = [c["delta"] for f in got if f["type"] == "chunk" and f["stream_id"] == stream_id for c in f["chunk"]["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def slow(text):
    return [{"ids": [b], "wait_ms": 15} for b in text.encode()] + [{"ids": [258]}]


def test_several_streams_at_once(scripted: Scene):
    texts = {f"s{i}": f"stream number {i}" for i in range(5)}
    with socket(scripted.alice) as opened:
        for stream_id, text in texts.items():
            opened.send(create(stream_id, *slow(text)))
        got = frames(opened, *texts)
    assert {stream_id: text_of(got, stream_id) for stream_id in texts} == texts
    order = [f["stream_id"] for f in got if f["type"] == "chunk"]
    assert order != sorted(order), "the streams must interleave"
    usage = {f["stream_id"]: f["usage"] for f in got if f["type"] == "done"}
    assert usage["s0"]["completion_tokens"] == len(texts["s0"]) + 1


def test_cancel_ends_one_stream_and_no_other(scripted: Scene):
    with socket(scripted.alice) as opened:
        opened.send(create("long", *slow("x" * 300), max_tokens=400))
        opened.send(create("short", *slow("hello")))
        first = json.loads(opened.recv(timeout=10))
        assert first["type"] == "chunk"
        opened.send(json.dumps({"type": "cancel", "stream_id": "long"}))
        got = frames(opened, "long", "short")
        ended = next(f for f in got if f["type"] == "done" and f["stream_id"] == "long")
        assert ended["usage"]["completion_tokens"] < 300
        assert text_of(got, "short").endswith("hello"[-3:])
        opened.send(create("long", *slow("again")))
        assert text_of(frames(opened, "long"), "long") == "again"


def test_errors_belong_to_their_stream(scripted: Scene):
    with socket(scripted.alice) as opened:
        opened.send(create("bad", temperature=9))
        opened.send(create("good", *slow("fine")))
        got = frames(opened, "bad", "good")
        error = next(f for f in got if f["type"] == "error")
        assert (error["stream_id"], error["error"]["param"]) == ("bad", "temperature")
        assert text_of(got, "good") == "fine"


@pytest.mark.parametrize("raw", ["{", "[]", '{"type": "create"}', '{"type": "create", "stream_id": "a"}', '{"type": "x", "stream_id": "a"}',
                                 '{"type": "create", "stream_id": 5, "request": {}}', b"\xff\x00"])
def test_a_bad_frame_is_an_error_frame(scripted: Scene, raw):
    with socket(scripted.alice) as opened:
        opened.send(raw)
        assert json.loads(opened.recv(timeout=10))["type"] == "error"
        opened.send(create("a", *slow("ok")))
        assert text_of(frames(opened, "a"), "a") == "ok"


def test_a_frame_that_is_too_big_closes_with_1009(scripted: Scene):
    with socket(scripted.alice) as opened:
        opened.send("x" * (5 * 1024 * 1024))
        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(timeout=10)
        assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Bearer tk_abcdef_" + "x" * 43}])
def test_who_may_not_enter_is_told_at_the_upgrade(scripted: Scene, headers):
    with pytest.raises(InvalidStatus) as refused, socket(scripted.alice, additional_headers=headers):
        pass
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["error"]["code"] == "invalid_api_key"


def test_a_path_without_a_socket(scripted: Scene):
    with pytest.raises(InvalidStatus) as refused, socket(scripted.alice, path="/v1/nope"):
        pass
    assert refused.value.response.status_code == 404


def test_a_ticket_is_good_once(scripted: Scene):
    ticket = scripted.alice.http.post("/v1/tickets", json={"model": "m"}).json()["ticket"]
    by_ticket = {"additional_headers": {}, "subprotocols": ["tokenry", f"tokenry-ticket.{ticket}"]}
    with socket(scripted.alice, **by_ticket) as opened:
        assert opened.subprotocol == "tokenry"
        opened.send(create("a", *slow("hi")))
        assert text_of(frames(opened, "a"), "a") == "hi"
    with pytest.raises(InvalidStatus) as refused, socket(scripted.alice, **by_ticket):
        pass
    assert refused.value.response.status_code == 401


def test_a_ticket_carries_its_own_tenants_defaults(scripted: Scene):
    ticket = scripted.bob.http.post("/v1/tickets", json={}).json()["ticket"]
    with socket(scripted.bob, additional_headers={}, subprotocols=["tokenry", f"tokenry-ticket.{ticket}"]) as opened:
        opened.send(create("a", {"ids": [72], "finish": "stop"}, logprobs=True))
        got = frames(opened, "a")
    logprobs = [c["logprobs"] for f in got if f["type"] == "chunk" for c in f["chunk"]["choices"] if c["logprobs"]]
    assert [entry["token"] for each in logprobs for entry in each["content"]] == ["token_id:72"]


def test_completions_as_a_socket(scripted: Scene):
    with socket(scripted.alice, path="/v1/completions") as opened:
        opened.send(json.dumps({"type": "create", "stream_id": "t", "request": {"prompt": "Hi", **script(*slow("there"))}}))
        got = frames(opened, "t")
    assert "".join(c["text"] for f in got if f["type"] == "chunk" for c in f["chunk"]["choices"]) == "there"
