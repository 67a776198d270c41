"""Clients that leave, and a node that dies: slots are freed, streams end with an error, and the next request works."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time

import httpx
import pytest

from tests.conftest import Scene
from tests.world import World, script

HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400}
SLOW = {**HI, **script(*[{"ids": [97], "wait_ms": 10}] * 390, {"ids": [258]})}


def running(scene: Scene) -> float:
    """Requests that the node's engine holds, running or queued."""
    text = scene.node.node_client.get("/metrics").text
    values = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line and not line.startswith("#")}
    return values["vllm:num_requests_running"] + values["vllm:num_requests_waiting"]


def wait_for(scene: Scene, requests: int, seconds: float = 5) -> None:
    """Until the engine holds so many; its own count is a fraction of a second old."""
    time.sleep(0.3)
    end = time.monotonic() + seconds
    while running(scene) != requests and time.monotonic() < end:
        time.sleep(0.05)
    assert running(scene) == requests


async def leave(tenant, streaming: bool, after: float) -> None:
    async with tenant.asynchronous() as client:
        try:
            async with asyncio.timeout(after):
                await client.post("/v1/chat/completions", json={**SLOW, "stream": streaming})
        except TimeoutError:
            return
    raise AssertionError("the answer came before the client left")


async def test_two_hundred_clients_leave_at_random_moments(scripted: Scene):
    rng = random.Random(7)
    for _ in range(10):
        tenants = [scripted.alice, scripted.bob] * 10
        await asyncio.gather(*(leave(tenant, rng.random() < 0.5, rng.uniform(0.01, 0.6)) for tenant in tenants))
    wait_for(scripted, 0)
    before = await descriptors(scripted)
    await asyncio.gather(*(leave(scripted.alice, True, 0.2) for _ in range(20)))
    wait_for(scripted, 0)
    assert await descriptors(scripted) <= before + 5


async def descriptors(scene: Scene) -> int:
    """Open files and connections of the platform, once it had a moment to close them."""
    await asyncio.sleep(0.5)
    return len(os.listdir(f"/proc/{scene.platform.process.pid}/fd"))


def test_a_socket_that_closes_ends_its_streams(scripted: Scene):
    from websockets.sync.client import connect

    url = scripted.alice.url.replace("http", "ws") + "/v1/chat/completions"
    with connect(url, additional_headers=scripted.alice.headers, close_timeout=1) as opened:
        for stream_id in "abc":
            opened.send(json.dumps({"type": "create", "stream_id": stream_id, "request": SLOW}))
        begun = set()
        while len(begun) < 3:
            begun.add(json.loads(opened.recv(timeout=10))["stream_id"])
        wait_for(scripted, 3)
    wait_for(scripted, 0)


def test_a_node_that_is_killed(world: World):
    """Streams end with an error event, new requests get a 503 with Retry-After, and a node that is back serves at once."""
    node = world.scripted_node("killed-node")
    platform = world.scripted_platform("killed-platform", node)
    tenant = platform.tenant("Carol")
    with tenant.http.stream("POST", "/v1/chat/completions", json={**SLOW, "stream": True}) as response:
        lines = response.iter_lines()
        while '"content":"a"' not in next(lines):
            pass
        os.killpg(node.process.pid, signal.SIGKILL)
        data = [line[6:] for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    assert json.loads(data[-2])["error"]["code"] in (503, "no_node", 500)
    refused = tenant.http.post("/v1/chat/completions", json=HI)
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["error"]["code"] == "no_node"
    assert platform.node_client.get("/readyz").status_code == 503


def test_the_engine_process_is_killed_and_comes_back_by_itself(world: World):
    node = world.scripted_node("phoenix-node")
    platform = world.scripted_platform("phoenix-platform", node)
    tenant = platform.tenant("Dora")
    worker = next(int(pid) for pid in children(node.process.pid) if "inference.engine.worker" in command_of(pid))
    with tenant.http.stream("POST", "/v1/chat/completions", json={**SLOW, "stream": True}) as response:
        lines = response.iter_lines()
        while '"content":"a"' not in next(lines):
            pass
        os.kill(worker, signal.SIGKILL)
        data = [line[6:] for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    assert "error" in json.loads(data[-2])
    end = time.monotonic() + 20
    while (again := tenant.http.post("/v1/chat/completions", json={**HI, **script({"ids": [72], "finish": "stop"})})).status_code == 503:
        assert again.headers["Retry-After"]
        assert time.monotonic() < end
        time.sleep(0.2)
    assert again.json()["choices"][0]["message"]["content"] == "H"


def children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as listed:
        return listed.read().split()


def command_of(pid: str) -> str:
    with open(f"/proc/{pid}/cmdline") as line:
        return line.read()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_slow_reader_holds_up_nobody(scripted: Scene, path):
    """One client reads nothing of a fast, long stream; others are answered meanwhile, and it then reads everything."""
    fast = script(*[{"ids": [97 + i % 26]} for i in range(390)], {"ids": [258]})
    body = {**HI, **fast, "stream": True} if "chat" in path else {"prompt": "Hi", "max_tokens": 400, **fast, "stream": True}
    with scripted.alice.http.stream("POST", path, json=body) as response:
        for _ in range(5):
            quick = {**HI, **script({"ids": [72], "finish": "stop"})}
            assert httpx.post(scripted.bob.url + "/v1/chat/completions", json=quick, headers=scripted.bob.headers).status_code == 200
        chunks = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    text = "".join((c.get("text") or (c.get("delta") or {}).get("content") or "") for chunk in chunks for c in chunk["choices"])
    assert text == "".join(chr(97 + i % 26) for i in range(390))
