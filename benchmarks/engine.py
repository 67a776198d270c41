"""Our engine against those that one would pick instead, over HTTP, in one run on this machine.

    python benchmarks/engine.py [--quick] [--rounds N] [--peers NAME ...] [--works NAME ...]

Starts our node and every peer that `make bench-peers` has set up. Then, round by round and work by work, each server does the same work
in turn; all others stand still meanwhile. Greedy, end of sequence ignored, random prompts. Prints medians over the rounds, and ratios. On
two quiet cores the whole takes about an hour, `--peers vllm` twenty minutes.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from harness import load, ours
from harness.server import Server, only, running
from harness.table import Figure, lines, percentile
from harness.works import FULL, QUICK, WARM_UP, Work
from peers import Contestant, hugging_face, llama_cpp, vllm

from tokenry.model_store import find_model

SECONDS_PER_WORK = 600
THROUGHPUT = Figure("output tokens", "a second")
FIRST = Figure("first token, median", "s", more_is_better=False)
LAST_FIRST = Figure("first token, the last", "s", more_is_better=False)
FIRST_95 = Figure("first token, 95th of 100", "s", more_is_better=False)
PAUSE = Figure("between tokens, median", "s", more_is_better=False)
PAUSE_95 = Figure("between tokens, 95th", "s", more_is_better=False)
PAUSE_99 = Figure("between tokens, 99th", "s", more_is_better=False)

Results = dict[str, dict[Figure, dict[str, list[float]]]]
"""By work, figure and server: one value a round."""


def main() -> None:
    options = arguments()
    entered = contestants(find_model("smollm2"), options.peers)
    works = [work for work in (QUICK if options.quick else FULL) if not options.works or work.name in options.works]
    rounds = options.rounds if options.rounds is not None else 1 if options.quick else 3
    with running([contestant.command for contestant in entered]) as servers:
        pairs = list(zip(entered, servers, strict=True))
        for contestant, server in pairs:
            measure(contestant, server, WARM_UP, Random(0))
        results = alternate(pairs, works, rounds)
    report(results, works, rounds)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of small works: shows that all runs, measures nothing")
    parser.add_argument("--rounds", type=int, help="rounds (3; with --quick 1)")
    parser.add_argument("--peers", nargs="*", metavar="NAME", help="only peers whose name begins so; none: ours alone")
    parser.add_argument("--works", nargs="*", default=[], choices=[work.name for work in FULL], metavar="NAME", help="only these works")
    return parser.parse_args()


def contestants(model: Path, wanted: Sequence[str] | None) -> list[Contestant]:
    """Ours, and the peers that are installed and wanted."""
    peers = [vllm.engine(model)] if vllm.installed() else []
    peers += [llama_cpp.engine()] if llama_cpp.installed() else []
    peers += hugging_face.engines(model)
    if not (vllm.installed() and llama_cpp.installed()):
        print("Not every peer is set up; `make bench-peers` does it.")
    chosen = [peer for peer in peers if wanted is None or peer.name.lower().startswith(tuple(name.lower() for name in wanted))]
    return [Contestant(ours.node(model)), *chosen]


def alternate(pairs: Sequence[tuple[Contestant, Server]], works: Sequence[Work], rounds: int) -> Results:
    """Every work, by every server in turn, as often as there are rounds; another server begins in each round."""
    results: Results = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for number in range(rounds):
        first = number % len(pairs)
        for work in works:
            for contestant, server in [*pairs[first:], *pairs[:first]]:
                if work.name in contestant.skips:
                    continue
                print(f"Round {number + 1} of {rounds}: {work.title}: {server.name}", flush=True)
                for figure, value in measure(contestant, server, work, Random(f"{work.name} {number}")).items():
                    results[work.name][figure][server.name].append(value)
    return results


def measure(contestant: Contestant, server: Server, work: Work, random: Random) -> Mapping[Figure, float]:
    """One server, one work, once. A peer that fails is told and left out; ours may not fail."""
    asks = work.asks(random)[: contestant.at_most]
    with only(server):
        try:
            run = load.run(server.url, server.command.headers, contestant.dialect, asks, SECONDS_PER_WORK)
        except load.LoadFailed as exc:
            if contestant.name == ours.NAME:
                raise
            print(f"  {server.name} failed: {exc}", flush=True)
            return {}
    return figures(run, work, whole=contestant.at_most is None)


def figures(run: load.Run, work: Work, whole: bool) -> dict[Figure, float]:
    """What this work says. A server that got only some of the requests shows its throughput and no waiting times."""
    first = [answer.first_token for answer in run.answers]
    if not whole:
        return {THROUGHPUT: run.tokens_per_second}
    if not work.steady:
        return {THROUGHPUT: run.tokens_per_second, FIRST: percentile(first, 0.5), LAST_FIRST: max(first)}
    pauses = [pause for answer in run.answers for pause in answer.pauses]
    waits = {FIRST: percentile(first, 0.5), FIRST_95: percentile(first, 0.95)}
    return waits | {PAUSE: percentile(pauses, 0.5), PAUSE_95: percentile(pauses, 0.95), PAUSE_99: percentile(pauses, 0.99)}


def report(results: Results, works: Sequence[Work], rounds: int) -> None:
    print(f"\n{len(os.sched_getaffinity(0))} cores, float32; medians of {rounds} rounds, then the lowest and the highest round")
    for work in works:
        print(f"\n{work.title}")
        print("\n".join(lines(results[work.name], ours.NAME)))


if __name__ == "__main__":
    main()
