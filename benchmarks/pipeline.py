"""Render and derender, ours beside vLLM's render server, in one run on this machine.

    python benchmarks/pipeline.py [--quick] [--rounds N]

Starts our platform (one process; the scripted node behind it has nothing to do) and, where `make bench-peers` has set it up, vLLM's render
server. Before anything is timed, both must give the same answers. Then, round by round, each does the same work in turn while the other one
stands still. Prints medians over the rounds, and ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from harness import ours
from harness.load import client
from harness.material import Material
from harness.server import Server, only, running
from harness.table import Figure, lines
from peers import vllm

from tokenry.model_store import find_model

RENDER, DERENDER = "/v1/chat/completions/render", "/v1/chat/completions/derender"
SECONDS_PER_WORK = 300


@dataclass(frozen=True)
class Work:
    """`bodies` makes one round's requests, which so many clients send, each its next one as soon as it has the answer to the last."""

    name: str
    path: str
    clients: int
    bodies: Callable[[Random], list[bytes]]


def main() -> None:
    options = arguments()
    model = find_model("smollm2")
    scale = 10 if options.quick else 1
    rounds = options.rounds if options.rounds is not None else 1 if options.quick else 3
    with platform(model) as platform_server, running([vllm.renderer(model)] if vllm.installed() else []) as peers:
        if not peers:
            print("vLLM is not set up, so there is nothing to compare with; `make bench-peers` does it.")
        servers = [platform_server, *peers]
        material = Material(model)
        works = works_of(material, scale)
        check_same_answers(servers, works)
        report(alternate(servers, works, material.text_ids(Random("stream"), 512 // scale), rounds), rounds)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of the requests: shows that all runs, measures nothing")
    parser.add_argument("--rounds", type=int, help="rounds (3; with --quick 1)")
    return parser.parse_args()


@contextmanager
def platform(model: Path) -> Iterator[Server]:
    """Our platform with a tenant of its own, whose key every request carries."""
    with tempfile.TemporaryDirectory(prefix="tokenry-benchmark-") as home, running([ours.scripted_node(model)]) as (node,):
        node.go_on()  # the platform asks whether it is there
        key = ours.tenant_key(Path(home))
        with running([ours.platform(model, node.url, Path(home), key)]) as (server,):
            yield server


def works_of(material: Material, scale: int) -> list[Work]:
    def many(count: int, make: Callable[[Random], dict[str, Any]]) -> Callable[[Random], list[bytes]]:
        return lambda random: [json.dumps(make(random)).encode() for _ in range(count // scale)]

    def chat(random: Random) -> dict[str, Any]:
        return material.chat(random, 20)

    return [
        Work("chat render, 20 messages, 1 client", RENDER, 1, many(400, chat)),
        Work("chat render, 20 messages, 16 clients", RENDER, 16, many(800, chat)),
        Work("derender, 256 tokens, 5 candidates", DERENDER, 1, many(60, lambda random: material.derender(random, 256, 5))),
        Work("derender, 256 tokens, no logprobs", DERENDER, 1, many(400, lambda random: material.derender(random, 256, None))),
    ]


def check_same_answers(servers: Sequence[Server], works: Sequence[Work]) -> None:
    """One request of every kind to every server: what is compared in speed must be the same work."""
    for work in works:
        body = work.bodies(Random(work.name))[0]
        answers = []
        for server in servers:
            with only(server):
                answers.append(essence(asyncio.run(ask(server, work.path, [body]))[0]))
        if any(answer != answers[0] for answer in answers):
            raise SystemExit(f"The servers answer differently, so their speeds cannot be compared: {work.name}")


def essence(answer: dict[str, Any]) -> Any:
    """What two right answers have in common: the prompt's tokens, or the text and its logprobs."""
    if "token_ids" in answer:
        return answer["token_ids"]
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["logprobs"]


async def ask(server: Server, path: str, bodies: Sequence[bytes]) -> list[dict[str, Any]]:
    async with session(server) as http:
        return [json.loads(await post(http, path, body)) for body in bodies]


def session(server: Server) -> aiohttp.ClientSession:
    return client(server.url, server.command.headers, SECONDS_PER_WORK)


async def post(http: aiohttp.ClientSession, path: str, body: bytes) -> bytes:
    async with http.post(path, data=body) as response:
        answer = await response.read()
        if response.status != 200:
            raise SystemExit(f"{path} answered {response.status}: {answer[:300]!r}")
        return answer


def alternate(servers: Sequence[Server], works: Sequence[Work], stream: Sequence[int], rounds: int) -> dict[Figure, dict[str, list[float]]]:
    """Every work, by every server in turn, as often as there are rounds; the other one begins in each round."""
    results: dict[Figure, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    streaming = Figure(f"{len(stream)} streaming derender calls", "s", more_is_better=False)
    for number in range(rounds):
        for server in servers if number % 2 == 0 else servers[::-1]:
            print(f"Round {number + 1} of {rounds}: {server.name}", flush=True)
            with only(server):
                for work in works:
                    speed = asyncio.run(requests_per_second(server, work, work.bodies(Random(f"{work.name} {number}"))))
                    results[Figure(work.name, "a second")][server.name].append(speed)
                results[streaming][server.name].append(asyncio.run(stream_seconds(server, stream)))
    return results


async def requests_per_second(server: Server, work: Work, bodies: Sequence[bytes]) -> float:
    """All requests by the work's clients together, as fast as they are answered, for at most SECONDS_PER_WORK."""
    remaining = iter(bodies)

    async def work_off(http: aiohttp.ClientSession) -> None:
        for body in remaining:
            await post(http, work.path, body)

    async with session(server) as http, asyncio.timeout(SECONDS_PER_WORK):
        begun = time.perf_counter()
        await asyncio.gather(*(work_off(http) for _ in range(work.clients)))
        return len(bodies) / (time.perf_counter() - begun)


async def stream_seconds(server: Server, ids: Sequence[int]) -> float:
    """One call a token, each with the state that the last one gave back, as a client of the streaming derender does it."""
    state = None
    async with session(server) as http, asyncio.timeout(SECONDS_PER_WORK):
        begun = time.perf_counter()
        for tid in ids:
            answer = await post(http, DERENDER, json.dumps(streaming_call(tid, state)).encode())
            state = json.loads(answer)["stream_state"]
        return time.perf_counter() - begun


def streaming_call(tid: int, state: Mapping[str, Any] | None) -> dict[str, Any]:
    choice = {"index": 0, "token_ids": [tid], "finish_reason": None, "logprobs": None}
    chunk = {"request_id": "generate-tokens-0", "output_mode": "tokens", "usage": None, "choices": [choice]}
    return {"stream": True, "generate_chunk": chunk, "stream_state": state, "chat_request": {"messages": []}}


def report(results: Mapping[Figure, Mapping[str, Sequence[float]]], rounds: int) -> None:
    print(f"\n{len(os.sched_getaffinity(0))} cores; medians of {rounds} rounds, then the lowest and the highest round")
    print("\n".join(lines(results, ours.NAME)))


if __name__ == "__main__":
    main()
