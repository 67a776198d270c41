"""Several platform processes over PostgreSQL and Valkey: limits hold across them, and one that is killed loses and doubles nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import httpx
import pytest

from tenants import services
from tenants.models import Key
from tests.stores import Postgres, Valkey, using_database
from tests.world import Server, World, script

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
QUICK = {**HI, **script({"ids": [72, 105], "finish": "stop"})}
HALF_A_SECOND = {**HI, **script(*[{"ids": [97], "wait_ms": 50}] * 10, {"ids": [258]})}
ENDLESS = {**HI, "max_tokens": 480, **script(*[{"ids": [97], "wait_ms": 100}] * 480)}
PROMPT_TOKENS = 21


@pytest.fixture(scope="module")
def fleet(world: World, postgres: Postgres, valkey: Valkey) -> list[Server]:
    """One node, and four platforms that share everything."""
    postgres.run("CREATE DATABASE many_processes")
    env = {"DATABASE_URL": postgres.url("many_processes"), "REDIS_URL": valkey.url, "TOKENRY_SECRET_KEY": "one secret for all " * 3}
    node = world.scripted_node("shared-node")
    return [world.scripted_platform(f"platform-{n}", node, env=env) for n in range(4)]


def limited(server: Server, name: str, **bounds: int):
    tenant = server.tenant(name)
    if bounds:
        run(server, f"from tenants.models import Limit; Limit.objects.create(tenant_id={tenant.id}, **{bounds!r})")
        time.sleep(0.6)
    return tenant


def run(server: Server, code: str) -> str:
    return server.manage("shell", "-v", "0", "-c", code).strip()


def rows(server: Server, tenant) -> list[list]:
    """[request id, status, completion tokens] of the tenant's entries."""
    code = (f"import json; from tenants.models import Entry; print(json.dumps(list(map(list, "
            f"Entry.objects.filter(tenant_id={tenant.id}).values_list('request_id', 'status', 'completion_tokens')))))")
    return json.loads(run(server, code).splitlines()[-1])


@pytest.mark.parametrize(("bounds", "body", "code"), [
    ({"requests_per_minute": 10}, QUICK, "requests"),
    ({"concurrency": 10}, {**HALF_A_SECOND, **script(*[{"ids": [97], "wait_ms": 300}] * 15, {"ids": [258]})}, "concurrency"),
    ({"tokens_per_day": 10 * (PROMPT_TOKENS + 20)}, HALF_A_SECOND, "insufficient_quota"),
], ids=["requests", "concurrency", "budget"])  # fmt: skip
def test_fifty_at_once_against_a_limit_of_ten(fleet: list[Server], bounds, body, code):
    tenant = limited(fleet[0], f"ten {code}", **bounds)
    urls = [server.url for server, _ in zip(cycle(fleet), range(50), strict=False)]
    with httpx.Client(headers=tenant.headers, timeout=60) as client, ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda url: client.post(url + PATH, json=body), urls))
    assert Counter(answer.status_code for answer in answers) == {200: 10, 429: 40}
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 429} == {code}


def test_a_key_revoked_on_one_is_dead_on_all_within_a_second(fleet: list[Server]):
    tenant = limited(fleet[0], "to be revoked")
    assert [httpx.post(server.url + PATH, json=QUICK, headers=tenant.headers).status_code for server in fleet] == [200] * 4
    public_id = tenant.key.split("_")[1]
    code = f"services.revoke_key(key=Key.objects.get(public_id='{public_id}'))"
    run(fleet[0], f"from tenants import services; from tenants.models import Key; {code}")
    time.sleep(1)
    assert [httpx.post(server.url + PATH, json=QUICK, headers=tenant.headers).status_code for server in fleet] == [401] * 4


def test_a_hundred_keys_revoked_at_random_moments_under_load(fleet: list[Server], postgres: Postgres, django_db_blocker: Any):
    """No request that begins a second after its key's end is let in, on no process."""
    tenant = limited(fleet[0], "of a hundred keys")
    make = f"[services.create_key(tenant=Tenant.objects.get(pk={tenant.id}), name=str(n))[1] for n in range(100)]"
    keys = run(fleet[0], f"from tenants import services; from tenants.models import Tenant; print(*{make}, sep='\\n')").splitlines()[-100:]
    let_in: list[tuple[str, float]] = []  # (public id, when it was sent) of requests that were answered
    over = threading.Event()

    def call(client: httpx.Client) -> None:
        while not over.is_set():
            key, server, begun = random.choice(keys), random.choice(fleet), time.time()
            if client.post(server.url + PATH, json=QUICK, headers={"Authorization": f"Bearer {key}"}).status_code == 200:
                let_in.append((key.split("_")[1], begun))

    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(8) as pool, django_db_blocker.unblock():
        for _ in range(8):
            pool.submit(call, client)
        with using_database(postgres.url("many_processes")):
            for key in random.sample(keys, 100):
                time.sleep(random.expovariate(12))
                services.revoke_key(key=Key.objects.get(public_id=key.split("_")[1]))
            time.sleep(2)
            over.set()
            revoked = Key.objects.filter(tenant_id=int(tenant.id), revoked_at__isnull=False)
            ended = {key.public_id: key.revoked_at.timestamp() for key in revoked}
    assert len(ended) == 100
    assert len(let_in) > 50
    assert [(key, begun - ended[key]) for key, begun in let_in if begun > ended[key] + 1] == []


def test_a_platform_that_is_killed_with_streams_open(world: World, fleet: list[Server]):
    """Every admitted request has one row, settled once; its slots are free again, and another process takes what comes."""
    victim, heir = fleet[1], fleet[0]
    tenant = limited(heir, "of the victim", concurrency=20)
    begun = threading.Barrier(21)

    def stream(number: int) -> None:
        with httpx.Client(headers=tenant.headers, timeout=60) as client:
            headers = {"x-request-id": f"s{number}"}
            with client.stream("POST", victim.url + PATH, json={**ENDLESS, "stream": True}, headers=headers) as response:
                lines = response.iter_lines()
                while '"content":"a"' not in next(lines):
                    pass
                begun.wait(30)
                for _ in lines:
                    pass

    threads = [threading.Thread(target=lambda n=n: swallow(stream, n)) for n in range(20)]
    for thread in threads:
        thread.start()
    begun.wait(30)
    os.killpg(victim.process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    end = time.monotonic() + 120
    while httpx.post(heir.url + PATH, json=QUICK, headers=tenant.headers).status_code != 200:
        assert time.monotonic() < end, "the dead process's slots are never freed"
        time.sleep(1)
    found = rows(heir, tenant)
    while any(status == "started" for _, status, _ in found):
        assert time.monotonic() < end, "rows of the dead process are never settled"
        time.sleep(2)
        found = rows(heir, tenant)
    interrupted = [row for row in found if row[1] == "interrupted"]
    assert sorted(row[0] for row in interrupted) == sorted(f"chatcmpl-s{n}" for n in range(20))
    assert all(tokens < 480 for _, _, tokens in interrupted)


def swallow(work, *arguments) -> None:
    try:
        work(*arguments)
    except httpx.HTTPError:
        return
