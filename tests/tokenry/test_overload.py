"""Overload is the business of whoever causes it: a full queue is a 503 at once, a tenant's own limit a 429, and others go on."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.conftest import Scene
from tests.tokenry.test_limits import entries
from tests.world import Server, Tenant, World, script

PATH = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}
QUICK = {**HI, **script({"ids": [72, 105], "finish": "stop"})}
SLOW = {**HI, **script(*[{"ids": [97], "wait_ms": 50}] * 40, {"ids": [258]})}


@pytest.fixture(scope="module")
def narrow(world: World) -> Server:
    """A platform on a node that runs one sequence at a time and lets two more wait, one of each tenant."""
    node = world.scripted_node("narrow-node", "--max-num-seqs", "1", "--max-queue", "2", "--max-queue-per-tenant", "1")
    return world.scripted_platform("narrow", node)


def set_up(server: Server, tenant: Tenant, code: str) -> None:
    server.manage("shell", "-v", "0", "-c", f"from tenants.models import Limit, Tenant; own = Tenant.objects.get(pk={tenant.id}); {code}")
    time.sleep(0.6)  # what a key may do is cached for half a second


def answers_of(tenant: Tenant, count: int, body: dict) -> list[httpx.Response]:
    """In the order in which they came."""
    came: list[httpx.Response] = []
    with ThreadPoolExecutor(count) as pool:
        for _ in range(count):
            pool.submit(lambda: came.append(tenant.http.post(PATH, json=body)))
    return came


def test_a_full_queue_refuses_at_once_and_others_go_on(narrow: Server):
    alice, bob = narrow.tenant("Alice"), narrow.tenant("Bob")
    with ThreadPoolExecutor(1) as pool:
        flood: Future[list[httpx.Response]] = pool.submit(answers_of, alice, 6, SLOW)
        time.sleep(0.5)
        beside = bob.http.post(PATH, json=QUICK)
        assert not flood.done()
    assert beside.status_code == 200
    came = flood.result()
    assert [answer.status_code for answer in came] == [503] * 4 + [200] * 2, "refusals do not wait for those who run"
    error = came[0].json()["error"]
    assert (error["type"], error["code"]) == ("ServiceUnavailableError", "overloaded")
    assert int(came[0].headers["retry-after"]) >= 1
    rows = [row for row in ledger(narrow, alice) if row[0] == "failed"]
    assert rows == [["failed", 0, 0]] * 4, "what a node refuses costs nothing"
    assert alice.http.post(PATH, json=QUICK).status_code == 200


def ledger(server: Server, tenant: Tenant) -> list[list]:
    return entries(Scene(server, server, tenant, tenant), tenant)


def test_a_full_node_refuses_streams_and_sockets_alike(narrow: Server):
    """A stream that cannot begin is a 503, not a 200 with an error in it."""
    alice = narrow.tenant("Alice")
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(alice.http.post, PATH, json=SLOW) for _ in range(2)]
        time.sleep(0.5)
        refused = alice.http.post(PATH, json={**QUICK, "stream": True})
        direct = alice.http.post("/inference/v1/generate", json={"token_ids": [72], "sampling_params": {"max_tokens": 1}})
    assert [answer.result().status_code for answer in busy] == [200, 200]
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert direct.status_code == 503


def test_a_tenant_at_its_concurrency_is_refused_and_others_are_not(scripted: Scene):
    crowd, beside = scripted.platform.tenant("crowd"), scripted.platform.tenant("beside the crowd")
    set_up(scripted.platform, crowd, "Limit.objects.create(tenant=own, concurrency=2)")
    with ThreadPoolExecutor(1) as pool:
        flood = pool.submit(answers_of, crowd, 10, SLOW)
        time.sleep(0.5)
        others = answers_of(beside, 5, QUICK)
        assert not flood.done()
    assert [answer.status_code for answer in others] == [200] * 5
    assert [answer.status_code for answer in flood.result()] == [429] * 8 + [200] * 2


def test_weights_reach_the_nodes_scheduler(world: World):
    """Two floods of the same size on one row: when the tenant of weight 4 is served, the one of weight 1 has had about a quarter of it."""
    node = world.scripted_node("weighing-node", "--max-num-seqs", "1")
    server = world.scripted_platform("weighing", node)
    heavy, light = server.tenant("heavy"), server.tenant("light")
    set_up(server, heavy, "own.weight = 4; own.save()")
    got = {heavy.name: 0, light.name: 0}
    seen: dict[str, int] = {}
    running = [6]

    def read(tenant: Tenant) -> None:
        body = {**HI, "stream": True, **script(*[{"ids": [97], "wait_ms": 5}] * 50, {"ids": [258]})}
        with httpx.Client(timeout=60) as client, client.stream("POST", tenant.url + PATH, json=body, headers=tenant.headers) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    got[tenant.name] += len(json.loads(line[6:])["choices"][0]["delta"].get("content", ""))
        if tenant is heavy:
            running[0] -= 1
            if running[0] == 0:
                seen.update(got)

    threads = [threading.Thread(target=read, args=(tenant,)) for _ in range(6) for tenant in (light, heavy)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {heavy.name: 300, light.name: 300}
    assert seen[heavy.name] == 300
    assert 30 <= seen[light.name] <= 150
