"""Asks a server for tokens over HTTP and notes when they came. All reading of answers happens after the clock has stopped."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

Arrival = tuple[float, bytes]


@dataclass(frozen=True)
class Ask:
    """One request: so many tokens after this prompt, sent `at` seconds after the start."""

    prompt: list[int]
    tokens: int
    at: float = 0.0


@dataclass(frozen=True)
class Dialect:
    """How a server is asked for tokens, and how many of them one event of its stream holds, given how many came before it."""

    path: str
    body: Callable[[Ask], dict[str, Any]]
    tokens: Callable[[Mapping[str, Any], int], int]


def generate_body(ask: Ask) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_tokens": ask.tokens, "ignore_eos": True}
    return {"token_ids": ask.prompt, "sampling_params": sampling, "stream": True}


def generate_tokens(event: Mapping[str, Any], before: int) -> int:
    return sum(len(choice["token_ids"]) for choice in event["choices"])


def completion_body(ask: Ask) -> dict[str, Any]:
    return {"prompt": ask.prompt, "n_predict": ask.tokens, "temperature": 0, "ignore_eos": True, "stream": True, "return_tokens": True}


def completion_tokens(event: Mapping[str, Any], before: int) -> int:
    """Tokens that are no whole character come with a later event or not at all; the last event tells how many there were."""
    return event["tokens_predicted"] - before if event["stop"] else len(event["tokens"])


GENERATE = Dialect("/inference/v1/generate", generate_body, generate_tokens)
LLAMA_CPP = Dialect("/completion", completion_body, completion_tokens)


@dataclass(frozen=True)
class Answer:
    """When each of one request's deltas came, and how many tokens it held; seconds from the start of the run."""

    sent: float
    deltas: Sequence[tuple[float, int]]

    @property
    def tokens(self) -> int:
        return sum(count for _, count in self.deltas)

    @property
    def first_token(self) -> float:
        return self.deltas[0][0] - self.sent

    @property
    def pauses(self) -> list[float]:
        """Between one delta and the next: a server that sends several tokens at once pauses for as long as they took."""
        return [b[0] - a[0] for a, b in zip(self.deltas, self.deltas[1:], strict=False)]


@dataclass(frozen=True)
class Run:
    answers: Sequence[Answer]

    @property
    def tokens_per_second(self) -> float:
        """All output tokens over the time from the first request to the last token."""
        begun = min(answer.sent for answer in self.answers)
        ended = max(answer.deltas[-1][0] for answer in self.answers)
        return sum(answer.tokens for answer in self.answers) / (ended - begun)


class LoadFailed(RuntimeError):
    """A server refused, broke off, or gave another number of tokens than it was asked for."""


def run(url: str, headers: Mapping[str, str], dialect: Dialect, asks: Sequence[Ask], seconds: float) -> Run:
    """Send every request at its time and read all answers, for at most `seconds`.

    Raises:
        LoadFailed: the answers are not what was asked for; a figure of them would mean nothing.
    """
    return asyncio.run(run_async(url, headers, dialect, asks, seconds))


async def run_async(url: str, headers: Mapping[str, str], dialect: Dialect, asks: Sequence[Ask], seconds: float) -> Run:
    bodies = [json.dumps(dialect.body(ask)).encode() for ask in asks]  # before the clock starts
    async with client(url, headers, seconds) as session:
        begun = time.perf_counter()
        try:
            raw = await asyncio.gather(*(one(session, dialect.path, body, begun + ask.at) for body, ask in zip(bodies, asks, strict=True)))
        except TimeoutError:
            raise LoadFailed(f"not done after {seconds:.0f} s") from None
        except aiohttp.ClientError as exc:
            raise LoadFailed(f"the connection failed: {exc}") from None
    answers = [Answer(sent, deltas(dialect, arrivals)) for sent, arrivals in raw]
    for ask, answer in zip(asks, answers, strict=True):
        if answer.tokens != ask.tokens:
            raise LoadFailed(f"{ask.tokens} tokens were asked for, {answer.tokens} came")
    return Run(answers)


def client(url: str, headers: Mapping[str, str], seconds: float) -> aiohttp.ClientSession:
    """As many connections as there are requests at once; none may take longer than `seconds`."""
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=seconds)
    return aiohttp.ClientSession(url, connector=connector, timeout=timeout, headers={"Content-Type": "application/json", **headers})


async def one(session: aiohttp.ClientSession, path: str, body: bytes, due: float) -> tuple[float, list[Arrival]]:
    """When the request was sent, and every piece of its answer with the time at which it came."""
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    sent = time.perf_counter()
    async with session.post(path, data=body) as response:
        if response.status != 200:
            raise LoadFailed(f"status {response.status}: {(await response.text())[:300]}")
        arrivals = []
        while data := await response.content.readany():
            arrivals.append((time.perf_counter(), data))
    return sent, arrivals


def deltas(dialect: Dialect, arrivals: Sequence[Arrival]) -> list[tuple[float, int]]:
    """The events of one stream: when each was whole, and how many tokens it held. Events without tokens are left out."""
    found, before, rest = [], 0, b""
    for when, data in arrivals:
        *whole, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in filter(None, map(parsed, whole)):
            if count := dialect.tokens(event, before):
                found.append((when, count))
                before += count
    return found


def parsed(block: bytes) -> dict[str, Any] | None:
    """The object in an event; None where it is the mark of the end, or a comment."""
    data = block.partition(b"data:")[2].strip()
    if data in (b"", b"[DONE]"):
        return None
    event: dict[str, Any] = json.loads(data)
    if "error" in event:
        raise LoadFailed(f"the server reported {str(event['error'])[:300]}")
    return event
