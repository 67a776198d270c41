"""What the engines are asked to do. The prompts of a round are random, and the same for every server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from harness.load import Ask

LOWEST, HIGHEST = 100, 49_000  # token ids: no special token of the default model, and none outside its vocabulary


@dataclass(frozen=True)
class Work:
    """`asks` makes one round's requests. `timed` says whether the times of first and later tokens mean something for each request."""

    name: str
    title: str
    asks: Callable[[Random], list[Ask]]
    steady: bool = False  # requests come by themselves, so throughput says nothing and waiting times do


def prompt(random: Random, length: int) -> list[int]:
    return [random.randint(LOWEST, HIGHEST) for _ in range(length)]


def at_once(count: int, length: int, tokens: int) -> Callable[[Random], list[Ask]]:
    return lambda random: [Ask(prompt(random, length), tokens) for _ in range(count)]


def mixed(count: int, shortest: int, longest: int, tokens: int) -> Callable[[Random], list[Ask]]:
    return lambda random: [Ask(prompt(random, random.randint(shortest, longest)), tokens) for _ in range(count)]


def shared_prefix(count: int, prefix: int, own: int, tokens: int) -> Callable[[Random], list[Ask]]:
    def asks(random: Random) -> list[Ask]:
        shared = prompt(random, prefix)
        return [Ask(shared + prompt(random, own), tokens) for _ in range(count)]

    return asks


def poisson(count: int, per_second: float, length: int, tokens: int) -> Callable[[Random], list[Ask]]:
    def asks(random: Random) -> list[Ask]:
        at, made = 0.0, []
        for _ in range(count):
            made.append(Ask(prompt(random, length), tokens, at))
            at += random.expovariate(per_second)
        return made

    return asks


FULL = (
    Work("one", "one stream, 128 in, 128 out", at_once(1, 128, 128)),
    Work("eight", "8 at once, 128 in, 128 out", at_once(8, 128, 128)),
    Work("thirty-two", "32 at once, 128 in, 128 out", at_once(32, 128, 128)),
    Work("mixed", "32 at once, 16 to 256 in, 64 out", mixed(32, 16, 256, 64)),
    Work("prefix", "32 at once with one prefix of 512 tokens, 32 of their own, 64 out", shared_prefix(32, 512, 32, 64)),
    Work("poisson", "24 by chance, one in 2 s on average, 128 in, 64 out", poisson(24, 0.5, 128, 64), steady=True),
)
QUICK = (
    Work("one", "one stream, 32 in, 16 out", at_once(1, 32, 16)),
    Work("eight", "8 at once, 32 in, 16 out", at_once(8, 32, 16)),
    Work("thirty-two", "32 at once, 32 in, 8 out", at_once(32, 32, 8)),
    Work("mixed", "8 at once, 16 to 64 in, 8 out", mixed(8, 16, 64, 8)),
    Work("prefix", "8 at once with one prefix of 128 tokens, 8 of their own, 8 out", shared_prefix(8, 128, 8, 8)),
    Work("poisson", "6 by chance, two a second on average, 32 in, 8 out", poisson(6, 2.0, 32, 8), steady=True),
)
WARM_UP = Work("warm-up", "8 at once, 64 in, 8 out", at_once(8, 64, 8))
