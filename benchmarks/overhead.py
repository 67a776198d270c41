"""What the platform adds to a request beside the node's own time, and how many stream chunks one platform process relays.

    python -m benchmarks.overhead [--seconds 10] [--stores postgres]

Everything is on: authentication, resolution, admission against every kind of limit of a key and its tenant, and the ledger; by default
in one process over SQLite, with `--stores postgres` over PostgreSQL and Valkey, started from their wheels.

The same scripted work goes to a node directly and through the platform, in alternating rounds of one run, as an open loop: requests
leave on schedule whether or not earlier ones have been answered. The difference is what the platform adds. Machines are noisy:
compare the columns of one run, not runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from tests.stores import Postgres, Valkey, running
from tests.world import NODE_SECRET, Server, World

RATES = (50, 100)
ROUNDS = 3
PROMPT = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
STEPS = [{"ids": [72 + i], "rows": []} for i in range(8)]
SCRIPT = [{"ids": step["ids"]} for step in STEPS[:-1]] + [{"ids": STEPS[-1]["ids"], "finish": "stop"}]
RELAY_STREAMS, RELAY_TOKENS = 16, 400
LIMITED = """
from tenants.models import Key, Limit, Price, Tenant
tenant = Tenant.objects.get(pk={tenant})
names = [field.name for field in Limit._meta.concrete_fields if field.name not in ("id", "tenant", "key")]
for key in (None, Key.objects.get(tenant=tenant)):
    Limit.objects.create(tenant=tenant, key=key, **dict.fromkeys(names, 10_000_000))
Price.objects.create(model="m", input=1, output=2)
"""


@dataclass
class Target:
    """One door: where requests go, with which key, and how this door spells the work."""

    name: str
    url: str
    key: str
    body: dict[str, Any]
    pid: int
    cpu: float = 0.0  # seconds of its main process, for all requests of a rate
    times: list[float] = field(default_factory=list)  # seconds, whole answers
    firsts: list[float] = field(default_factory=list)  # seconds, to the first content of a stream


async def once(session: aiohttp.ClientSession, target: Target) -> None:
    begun = time.perf_counter()
    async with session.post(target.url, json=target.body, headers={"Authorization": f"Bearer {target.key}"}) as response:
        raw = await response.read()
    if response.status != 200:
        raise RuntimeError(f"{target.name} answered {response.status}: {raw[:300]!r}")
    target.times.append(time.perf_counter() - begun)


async def first_token(session: aiohttp.ClientSession, target: Target) -> None:
    """Up to the first event that carries a token; the rest is read too, so that the stream ends in peace."""
    begun, seen = time.perf_counter(), False
    body = {**target.body, "stream": True}
    async with session.post(target.url, json=body, headers={"Authorization": f"Bearer {target.key}"}) as response:
        async for line in response.content:
            if not seen and (b'"content":"H' in line or b'"token_ids":[72' in line):
                target.firsts.append(time.perf_counter() - begun)
                seen = True


async def open_loop(work: Callable[[], Awaitable[None]], rate: float, seconds: float) -> None:
    """Poisson arrivals at `rate` per second for `seconds`."""
    clock, end, tasks = time.perf_counter(), time.perf_counter() + seconds, []
    while clock < end:
        clock += random.expovariate(rate)
        await asyncio.sleep(max(0.0, clock - time.perf_counter()))
        tasks.append(asyncio.create_task(work()))
    await asyncio.gather(*tasks)


async def measure(targets: list[Target], seconds: float) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for target in targets:
            for _ in range(50):
                await once(session, target)
        for kind, run in (("whole answer", once), ("first token", first_token)):
            for rate in RATES:
                for target in targets:
                    target.times.clear()
                    target.firsts.clear()
                    target.cpu = 0.0
                for _ in range(ROUNDS):
                    for target in targets:
                        used = cpu_seconds(target.pid)
                        await open_loop(partial(run, session, target), rate, seconds / ROUNDS)
                        target.cpu += cpu_seconds(target.pid) - used
                report(f"{kind}, {rate}/s", targets, [target.times if run is once else target.firsts for target in targets])


def report(what: str, targets: list[Target], samples: list[list[float]]) -> None:
    """CPU time is said too: it hardly depends on what else the machine does."""
    direct, through = (percentiles(times) for times in samples)
    cpu = " / ".join(f"{target.cpu / len(times) * 1000:.2f}" for target, times in zip(targets, samples, strict=True))
    added = [f"{(b - a) * 1000:6.2f}" for a, b in zip(direct, through, strict=True)]
    shown = [" / ".join(f"{value * 1000:6.2f}" for value in values) for values in (direct, through)]
    print(f"{what:22}  node {shown[0]}   platform {shown[1]}   added p50 {added[0]}  p99 {added[1]}   CPU {cpu}", flush=True)


def percentiles(times: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


async def relay(target: Target, pid: int) -> None:
    """Many long streams, as fast as everything goes; also per second of the platform's own CPU, since three processes share the cores."""
    script = [{"ids": [97 + i % 26]} for i in range(RELAY_TOKENS - 1)] + [{"ids": [97], "finish": "length"}]
    body = {**target.body, "max_tokens": RELAY_TOKENS, "stream": True, "vllm_xargs": {"script": script}}
    events = tokens = 0

    async def read(session: aiohttp.ClientSession) -> None:
        nonlocal events, tokens
        async with session.post(target.url, json=body, headers={"Authorization": f"Bearer {target.key}"}) as response:
            async for line in response.content:
                if line.startswith(b'data: {"id"'):
                    events += 1
                    tokens += len(json.loads(line[6:])["choices"][0]["delta"].get("content", ""))

    begun, cpu = time.perf_counter(), cpu_seconds(pid)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(read(session) for _ in range(RELAY_STREAMS)))
    wall, used = time.perf_counter() - begun, cpu_seconds(pid) - cpu
    print(f"relay, {RELAY_STREAMS} streams       {events / wall:8.0f} chunks/s and {tokens / wall:8.0f} tokens/s in all; "
          f"{events / used:8.0f} chunks and {tokens / used:8.0f} tokens per CPU second of the platform", flush=True)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def stores(kind: str) -> Iterator[dict[str, str]]:
    """The environment of a platform on these stores."""
    if kind == "embedded":
        yield {}
        return
    with running(Postgres) as postgres, running(Valkey) as valkey:
        yield {"DATABASE_URL": postgres.url(), "REDIS_URL": valkey.url, "TOKENRY_SECRET_KEY": "one secret for all " * 3}


def doors(platform: Server, node: Server) -> list[Target]:
    """The same work for the node and for the platform."""
    tenant = platform.tenant("bench")
    platform.manage("shell", "-v", "0", "-c", LIMITED.format(tenant=tenant.id))
    chat = {"messages": PROMPT, "max_tokens": 16, "vllm_xargs": {"script": SCRIPT}}
    prompt = tenant.http.post("/v1/chat/completions/render", json={"messages": PROMPT}).json()["token_ids"]
    ids = {"token_ids": prompt, "sampling_params": {"max_tokens": 16, "extra_args": {"script": SCRIPT}}}
    return [
        Target("node", f"{node.url}/inference/v1/generate", NODE_SECRET, ids, node.process.pid),
        Target("platform", f"{platform.url}/v1/chat/completions", tenant.key, chat, platform.process.pid),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=9, help="of load per door and rate (default 9)")
    parser.add_argument("--stores", choices=["embedded", "postgres"], default="embedded", help="postgres: PostgreSQL and Valkey")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stores(options.stores) as env:
        world = World(Path(folder))
        try:
            node = world.scripted_node("node")
            platform = world.scripted_platform("platform", node, env=env)
            targets = doors(platform, node)
            print(f"stores: {options.stores}; milliseconds, p50 / p99, and CPU per request of either process", flush=True)
            asyncio.run(measure(targets, options.seconds))
            for _ in range(ROUNDS):
                asyncio.run(relay(targets[1], platform.process.pid))
        finally:
            world.stop()


if __name__ == "__main__":
    main()
