"""What dies under load and comes back: every admitted request has one settled row, sums are right, and nothing stays taken.

The node, Valkey and PostgreSQL here; a platform process in test_many_processes.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import pytest

from tenants.models import Entry, Limit, Status
from tests.stores import Postgres, Valkey, running, using_database
from tests.tenants.ledger_world import check_books
from tests.world import Server, Tenant, World, script

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
QUICK = {**HI, **script({"ids": [72, 105], "finish": "stop"})}
STEPS = {**HI, **script(*[{"ids": [97], "wait_ms": 40}] * 10, {"ids": [258]})}
RESERVED = 21 + 20  # the prompt and max_tokens
DATABASE = "kills"
POOL = 4
CALLERS = 6
SLOTS = 8
LONG = 90  # seconds after which something that should have come back has not


@dataclass
class Site:
    """Two platforms, one node, and stores of their own to be killed."""

    postgres: Postgres
    valkey: Valkey
    node: Server
    platforms: list[Server]
    names: Iterator[int] = field(default_factory=count)

    @property
    def database(self) -> str:
        return self.postgres.url(DATABASE)


@pytest.fixture(scope="module")
def site(world: World) -> Iterator[Site]:
    with running(Postgres) as postgres, running(Valkey) as valkey:
        postgres.run(f"CREATE DATABASE {DATABASE}")
        env = {"DATABASE_URL": postgres.url(DATABASE), "REDIS_URL": valkey.url, "TOKENRY_SECRET_KEY": "one secret for all " * 3,
               "TOKENRY_DATABASE_POOL": str(POOL)}
        node = world.scripted_node("mortal-node", "--max-num-seqs", "256")
        platforms = [world.scripted_platform(f"survivor-{n}", node, "--max-num-seqs", "256", env=env) for n in range(2)]
        yield Site(postgres, valkey, node, platforms)
        for server in platforms:
            server.stop()


@pytest.fixture
def tenant(site: Site, django_db_blocker: Any) -> Iterator[Tenant]:
    """This process looks into the same database, too."""
    made = site.platforms[0].tenant(f"tenant {next(site.names)}")
    with django_db_blocker.unblock():
        with using_database(site.database):
            Limit.objects.create(tenant_id=int(made.id), concurrency=SLOTS, tokens_per_day=10_000_000)
        time.sleep(0.6)  # what a key may do is cached for half a second
        yield made


@dataclass
class Load:
    """Callers that ask one thing after another, streams and whole answers, of one platform and the other."""

    site: Site
    tenant: Tenant
    over: threading.Event = field(default_factory=threading.Event)
    numbers: Iterator[int] = field(default_factory=count)
    complete: list[str] = field(default_factory=list)  # ids of requests whose answer came whole
    statuses: Counter[int] = field(default_factory=Counter)

    def call(self) -> None:
        with httpx.Client(headers=self.tenant.headers, timeout=60) as client:
            while not self.over.is_set():
                number = next(self.numbers)
                try:
                    self.ask(client, self.site.platforms[number % 2].url, f"n{number}", streaming=number % 3 != 0)
                except httpx.HTTPError:
                    self.statuses[0] += 1
                time.sleep(0.02)

    def ask(self, client: httpx.Client, url: str, name: str, *, streaming: bool) -> None:
        with client.stream("POST", url + PATH, json={**STEPS, "stream": streaming}, headers={"x-request-id": name}) as response:
            text = response.read().decode()
        self.statuses[response.status_code] += 1
        if response.status_code == 200 and '"error"' not in text:
            self.complete.append(f"chatcmpl-{name}")


@contextmanager
def under_load(site: Site, tenant: Tenant) -> Iterator[Load]:
    """At work before, while and after what happens inside."""
    load = Load(site, tenant)
    with ThreadPoolExecutor(CALLERS) as pool:
        for _ in range(CALLERS):
            pool.submit(load.call)
        try:
            wait_until(lambda: len(load.complete) >= 10, "the load never began")
            yield load
            before = len(load.complete)
            wait_until(lambda: len(load.complete) >= before + 10, f"nothing works again: {load.statuses}")
        finally:
            load.over.set()


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


def check(site: Site, load: Load) -> None:
    """One settled row for each admitted request, sums that add up, free slots, no connections beyond the pools."""
    with using_database(site.database):  # anew: the server of an earlier connection may be dead
        check_rows(load)
        check_slots(site, load.tenant)
        check_budget(site, load.tenant)
    assert site.postgres.connection_count(DATABASE) <= POOL * len(site.platforms)


def check_rows(load: Load) -> None:
    rows = Entry.objects.filter(tenant_id=int(load.tenant.id))
    wait_until(lambda: not rows.filter(status=Status.STARTED).exists(), "rows stay open")
    found = dict(rows.values_list("request_id", "status"))
    assert len(found) == rows.count(), "a request has two rows"
    assert {found.get(name) for name in load.complete} == {Status.COMPLETED}
    assert set(load.statuses) <= {0, 200, 503}, load.statuses
    check_books()


def check_slots(site: Site, tenant: Tenant) -> None:
    """As many fit at once as may, and one more does not."""
    urls = [server.url for server in site.platforms]
    wait_until(lambda: Counter(together(tenant, urls, SLOTS)) == {200: SLOTS}, "slots have leaked")
    assert Counter(together(tenant, urls, SLOTS + 1)) == {200: SLOTS, 429: 1}


def together(tenant: Tenant, urls: list[str], number: int) -> list[int]:
    slow = {**HI, **script(*[{"ids": [97], "wait_ms": 200}] * 10, {"ids": [258]})}
    ask = lambda n: httpx.post(urls[n % len(urls)] + PATH, json=slow, headers=tenant.headers, timeout=60).status_code  # noqa: E731
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(ask, range(number)))


def check_budget(site: Site, tenant: Tenant) -> None:
    """The counters know what the rows say: with room for one request, one is admitted."""
    rows = Entry.objects.filter(tenant_id=int(tenant.id))
    wait_until(lambda: not rows.filter(status=Status.STARTED).exists(), "rows stay open")
    used = sum(prompt + completion for prompt, completion in rows.values_list("prompt_tokens", "completion_tokens"))
    Limit.objects.filter(tenant_id=int(tenant.id)).update(tokens_per_day=used + RESERVED)
    time.sleep(1)
    statuses = [httpx.post(server.url + PATH, json=QUICK, headers=tenant.headers).status_code for server in site.platforms]
    assert statuses == [200, 429]


def test_the_node_is_killed(site: Site, tenant: Tenant) -> None:
    with under_load(site, tenant) as load:
        site.node.kill()
        time.sleep(1)
        site.node.start()
    assert load.statuses[503] or load.statuses[200] > len(load.complete), "somebody noticed"
    check(site, load)


def test_valkey_is_killed_and_has_lost_everything(site: Site, tenant: Tenant) -> None:
    with under_load(site, tenant) as load:
        site.valkey.kill()
        time.sleep(1)
        site.valkey.start()
    assert load.statuses[503], "whom nobody can count may not pass"
    check(site, load)


def test_postgresql_is_restarted(site: Site, tenant: Tenant) -> None:
    with under_load(site, tenant) as load:
        site.postgres.stop()
        time.sleep(1)
        site.postgres.start()
    check(site, load)


def test_postgresql_is_killed(site: Site, tenant: Tenant) -> None:
    with under_load(site, tenant) as load:
        site.postgres.kill()
        time.sleep(1)
        site.postgres.start()
    check(site, load)


async def test_two_hundred_streams_hold_no_connections(site: Site) -> None:
    """No more than the pool has, and a plain request is answered meanwhile."""
    tenant = site.platforms[0].tenant("of many streams")
    body = {**HI, "stream": True, **script(*[{"ids": [97], "wait_ms": 1000}] * 12, {"ids": [258]})}
    begun = asyncio.Semaphore(0)

    async def read(client: httpx.AsyncClient) -> int:
        got = 0
        async with client.stream("POST", tenant.url + PATH, json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    text = json.loads(line[6:])["choices"][0]["delta"].get("content")
                    if text and not got:
                        begun.release()
                    got += len(text or "")
        return got

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(headers=tenant.headers, timeout=LONG, limits=limits) as client:
        streams = [asyncio.create_task(read(client)) for _ in range(200)]
        for _ in streams:
            await begun.acquire()
        held = await asyncio.to_thread(site.postgres.connection_count, DATABASE)
        plain = await client.post(tenant.url + PATH, json=QUICK)
        keys = await client.get(tenant.url + "/v1/usage")
        still = sum(not stream.done() for stream in streams)
        assert await asyncio.gather(*streams) == [12] * 200
    assert (plain.status_code, keys.status_code, still) == (200, 200, 200)
    assert held <= POOL * len(site.platforms)
