"""What one tenant's flood costs another one, and whether tokens follow the weights: on the default model, through a node, over HTTP.

    python benchmarks/fairness.py [--quick]

A tenant sends a short request at a time, first on an idle engine, then at random moments while another tenant floods it with 64 long ones.
Its first token may then take twice as long as on the idle engine, and as much longer as the step took that ran when it was sent. Then two
tenants of weights 3 and 1 flood the engine together, and what both got in the same time is counted. Takes three minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from statistics import median

import aiohttp
from harness import ours
from harness.load import GENERATE, Arrival, Ask, LoadFailed, client, deltas
from harness.server import Command, Server, only, running
from harness.works import prompt

from tokenry.model_store import find_model

SECRET = "of the benchmark"
ROWS = 32  # fewer than are asked for at once: weights share what is short
ARRIVAL_S = 0.01  # that a request may take through the node to the engine, in which one step may end and another begin
SECONDS = 600


@dataclass(frozen=True)
class Size:
    """How much is done of everything."""

    clients: int  # of a flood, each with one request at a time
    long: int  # prompt tokens of a flood's request
    tokens: int  # that it asks for
    short: int  # prompt tokens of the other tenant's request
    times: int  # that it is sent, on the idle engine and under the flood
    settle_s: float
    count_s: float  # in which the tokens of two floods are counted


FULL = Size(clients=64, long=256, tokens=128, short=64, times=20, settle_s=15, count_s=60)
QUICK = Size(clients=40, long=32, tokens=32, short=16, times=4, settle_s=2, count_s=5)


@dataclass
class Tenant:
    """Who asks, and every stream of what it got."""

    name: str
    weight: float = 1.0
    streams: list[list[Arrival]] = field(default_factory=list)

    async def read(self, session: aiohttp.ClientSession, ask: Ask) -> list[Arrival]:
        stream: list[Arrival] = []
        self.streams.append(stream)
        headers = {"X-Tokenry-Tenant": self.name, "X-Tokenry-Weight": f"{self.weight:g}"}
        async with session.post(GENERATE.path, data=json.dumps(GENERATE.body(ask)), headers=headers) as response:
            if response.status != 200:
                raise LoadFailed(f"status {response.status}: {(await response.text())[:300]}")
            while data := await response.content.readany():
                stream.append((time.perf_counter(), data))
        return stream

    def deltas(self) -> list[list[tuple[float, int]]]:
        """Of every stream: when tokens came, and how many."""
        return [deltas(GENERATE, stream) for stream in self.streams]

    def tokens_between(self, begun: float, ended: float) -> int:
        return sum(count for stream in self.deltas() for when, count in stream if begun <= when < ended)


@asynccontextmanager
async def flood(session: aiohttp.ClientSession, tenant: Tenant, size: Size, random: Random) -> AsyncIterator[None]:
    """As many requests at once as there are clients, until the block ends: each client sends another one when it has its answer."""

    async def one_after_the_other() -> None:
        while True:
            await tenant.read(session, Ask(prompt(random, size.long), size.tokens))

    tasks = [asyncio.create_task(one_after_the_other()) for _ in range(size.clients)]
    try:
        yield
    finally:
        failed = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in failed:
        task.result()


async def first_token(session: aiohttp.ClientSession, tenant: Tenant, size: Size, random: Random) -> tuple[float, float]:
    """When a short request was sent, and how long its first token took."""
    sent = time.perf_counter()
    stream = await tenant.read(session, Ask(prompt(random, size.short), 2))
    return sent, deltas(GENERATE, stream)[0][0] - sent


async def wait_for_first_tokens(url: str, headers: dict[str, str], size: Size) -> None:
    random, light, heavy = Random(1), Tenant("light"), Tenant("heavy")
    async with client(url, headers, SECONDS) as session:
        await first_token(session, light, size, random)
        idle = [await first_token(session, light, size, random) for _ in range(size.times)]
        async with flood(session, heavy, size, random):
            await asyncio.sleep(size.settle_s)
            flooded = []
            for _ in range(size.times):
                await asyncio.sleep(random.uniform(0.2, 1.5))
                flooded.append(await first_token(session, light, size, random))
    usual = median(took for _, took in idle)
    steps = [step_at(heavy.deltas(), sent) for sent, _ in flooded]
    shares = [took / (2 * usual + step) for (_, took), step in zip(flooded, steps, strict=True)]
    report("on an idle engine", [took for _, took in idle])
    report(f"while another tenant floods it with {size.clients}", [took for _, took in flooded])
    report("the step that ran when it was sent", steps)
    ratio, within = median(took for _, took in flooded) / usual, sum(share <= 1 for share in shares)
    print(f"  {ratio:.2f} times as long as on the idle engine; {within} of {len(shares)} within twice that and the step", flush=True)


def step_at(streams: list[list[tuple[float, int]]], moment: float) -> float:
    """How long the step took that ran then, or when the request had come to the engine: the pause of the streams that decoded."""
    pauses = [(a[0], b[0]) for stream in streams for a, b in pairwise(stream)]
    return max((later - earlier for earlier, later in pauses if earlier <= moment + ARRIVAL_S and moment < later), default=0.0)


def report(what: str, seconds: list[float]) -> None:
    print(f"  {what:<46} {median(seconds):7.3f} s  ({min(seconds):.3f} to {max(seconds):.3f})")


async def share_by_weights(url: str, headers: dict[str, str], size: Size) -> None:
    random, three, one = Random(2), Tenant("three", 3.0), Tenant("one", 1.0)
    async with client(url, headers, SECONDS) as session, flood(session, three, size, random), flood(session, one, size, random):
        await asyncio.sleep(size.settle_s)
        begun = time.perf_counter()
        await asyncio.sleep(size.count_s)
        ended = time.perf_counter()
    got = [tenant.tokens_between(begun, ended) for tenant in (three, one)]
    print(f"  {got[0]} and {got[1]} tokens in {ended - begun:.0f} s: {got[0] / max(1, got[1]):.2f} to 1")


def node() -> Command:
    """That believes whoever knows its secret for which tenant it asks."""
    command = ours.node(find_model("smollm2"))
    return replace(
        command, arguments=lambda port: [*command.arguments(port), "--max-num-seqs", ROWS], env={"TOKENRY_NODE_SECRET": SECRET},
        headers={"Authorization": f"Bearer {SECRET}"},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small floods: shows that all runs, measures nothing")
    size = QUICK if parser.parse_args().quick else FULL
    with running([node()]) as servers, only(server := servers[0]):
        measure(server, size)


def measure(server: Server, size: Size) -> None:
    headers = dict(server.command.headers)
    print(f"\nFirst token of a request of {size.short} tokens ({ROWS} rows; median, fastest and slowest of {size.times})", flush=True)
    asyncio.run(wait_for_first_tokens(server.url, headers, size))
    print(f"\nTwo tenants of weights 3 and 1, each with {size.clients} requests at once", flush=True)
    asyncio.run(share_by_weights(server.url, headers, size))


if __name__ == "__main__":
    main()
