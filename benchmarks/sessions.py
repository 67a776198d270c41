"""A stream derendered token by token, with parsers: in a session, by the stateless endpoint, and whole; and vLLM's beside it.

    python benchmarks/sessions.py [--quick] [--rounds N]

2,048 tokens of reasoning, content and a tool call, read by the parsers qwen3 and hermes. First in this process, without any server: a
whole derender against a session that is fed one token a chunk. Then over the network: our platform, and vLLM's render server where
`make bench-peers` has set it up, whole and call by call with the state that the last call gave back; ours also as a session over a
WebSocket, each chunk sent when the last is answered, and all sent at once. All must give the same message. Prints medians, and ratios.
Takes about four minutes, one of them without vLLM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import aiohttp
from harness import ours
from harness.load import client
from harness.material import Material
from harness.server import Server, ServerFailed, only, running
from harness.table import Figure, lines
from peers import vllm

from inference.derender import Session, derender_chat, open_session
from inference.model import ServedModel, load_model
from inference.protocol.codec import decode
from inference.protocol.derender import DerenderChatRequest, OpenSession
from inference.protocol.generate import GenerateChunk
from inference.render import chat_settings
from inference.resolve import resolve
from tokenry.model_store import find_model

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")  # single tokens in the families that write them
PARSERS = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3", "enable_auto_tool_choice": True}
FLAGS = ("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--max-model-len", "8192")
TOOLS = [{"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {"lines": {"type": "array"}}}}}]
CHAT = {"messages": [{"role": "user", "content": "What do you know of trains?"}], "tools": TOOLS}
DERENDER, SESSION = "/v1/chat/completions/derender", "/v1/derender/session"
SECONDS = 900
EDGE = 100  # chunks at either end whose times are compared

Samples = dict[Figure, dict[str, list[float]]]


class Stream:
    """What a model wrote, and the bodies that derender it."""

    def __init__(self, folder: Path, tokens: int) -> None:
        self.material = Material(folder)
        self.prompt = self.encoded("user\nWhat do you know of trains?\nassistant\n")
        self.ids = self.written(Random("sessions"), tokens)

    def written(self, random: Random, tokens: int) -> list[int]:
        """About a quarter reasoning and a quarter a call; the rest is content, cut to fit. vLLM drops a call that is cut."""
        notes = [self.material.text(random, 20) for _ in range(tokens // 100)]
        call = json.dumps({"name": "note", "arguments": {"lines": notes}})
        before = self.encoded(f"<think>\n{self.material.text(random, tokens // 4)}\n</think>")
        after = self.encoded(f"<tool_call>\n{call}\n</tool_call>")
        return before + self.encoded(self.material.text(random, tokens))[: tokens - len(before) - len(after)] + after

    def encoded(self, text: str) -> list[int]:
        return list(self.material.tokenizer.encode(text, add_special_tokens=False).ids)

    @property
    def whole(self) -> dict[str, Any]:
        choice = {"index": 0, "token_ids": self.ids, "finish_reason": "stop"}
        answer = {"request_id": "generate-tokens-0", "output_mode": "tokens", "choices": [choice]}
        return {"generate_response": answer, "prompt_token_ids": self.prompt, "chat_request": CHAT}

    @property
    def opening(self) -> dict[str, Any]:
        return {"chat_request": CHAT, "prompt_token_ids": self.prompt}

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """One a token; the last says that this was all."""
        reasons = [None] * (len(self.ids) - 1) + ["stop"]
        choices = [{"index": 0, "token_ids": [i], "finish_reason": reason} for i, reason in zip(self.ids, reasons, strict=True)]
        return [{"request_id": "generate-tokens-0", "choices": [choice]} for choice in choices]


def main() -> None:
    options = arguments()
    tokens = 128 if options.quick else 2048
    rounds = options.rounds if options.rounds is not None else 1 if options.quick else 5
    with ExitStack() as stack:
        folder = marked(find_model("smollm2"), Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenry-benchmark-"))))
        stream = Stream(folder, tokens)
        print(f"In this process, {tokens} tokens, one a chunk")
        report_process(in_process(load_model(folder, max_model_len=8192, **PARSERS), stream, rounds * 5))
        servers = stack.enter_context(both(folder))
        check_same_messages(servers, stream)
        results = alternate(servers, stream, rounds)
    print(f"\nOver the network, {tokens} tokens; {len(os.sched_getaffinity(0))} cores; medians of {rounds} rounds, lowest and highest")
    print("\n".join(lines(results, ours.NAME)))
    report_network(results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of 128 tokens: shows that all runs, measures nothing")
    parser.add_argument("--rounds", type=int, help="rounds (5; with --quick 1)")
    return parser.parse_args()


def marked(model: Path, home: Path) -> Path:
    """The model's tokenizer and configuration, with the parsers' markers as tokens of their own. No weights are needed."""
    folder = home / model.name
    folder.mkdir()
    for file in model.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    first = max([*tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"])]) + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokenizer["added_tokens"] += [{"id": first + i, "content": marker, **flags} for i, marker in enumerate(MARKERS)]
    path.write_text(json.dumps(tokenizer))
    return folder


# ---- in this process


def in_process(model: ServedModel, stream: Stream, rounds: int) -> dict[str, list[float]]:
    """Seconds of a whole derender and of a session, in turn; and of the session's first and last chunks."""
    asked = decode(DerenderChatRequest, json.dumps(stream.whole).encode())
    opening = decode(OpenSession, json.dumps(stream.opening).encode())
    chunks = [decode(GenerateChunk, json.dumps(chunk).encode()) for chunk in stream.chunks]
    assert asked.chat_request is not None
    effective = resolve(chat_settings(asked.chat_request), model.layers)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        begun = time.perf_counter()
        derender_chat(asked, model, effective)
        times["whole"].append(time.perf_counter() - begun)
        times["session"].append(sum(feed_all(open_session(opening, model, effective), [chunks])))
        edges = [chunks[:EDGE], chunks[EDGE:-EDGE], chunks[-EDGE:]]
        first, _, last = feed_all(open_session(opening, model, effective), edges)
        times["first"].append(first)
        times["last"].append(last)
    return times


def feed_all(session: Session, parts: Sequence[Sequence[GenerateChunk]]) -> list[float]:
    """The seconds of each part of a stream."""
    ends = [time.perf_counter()]
    for part in parts:
        for chunk in part:
            session.feed(chunk)
        ends.append(time.perf_counter())
    return [end - begun for begun, end in pairwise(ends)]


def report_process(times: Mapping[str, Sequence[float]]) -> None:
    whole, session, first, last = (median(times[name]) for name in ("whole", "session", "first", "last"))
    print(f"  whole {whole * 1e3:.2f} ms, session {session * 1e3:.2f} ms: {session / whole:.2f} times the whole")
    print(f"  the last {EDGE} chunks took {last / first:.2f} times as long as the first {EDGE}\n")


# ---- over the network


@contextmanager
def both(folder: Path) -> Iterator[list[Server]]:
    """Our platform with a tenant of its own, and vLLM's render server where it is set up and starts with these parsers."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenry-benchmark-")))
        (node,) = stack.enter_context(running([ours.scripted_node(folder)]))
        node.go_on()  # the platform asks whether it is there
        servers = stack.enter_context(running([ours.platform(folder, node.url, home, ours.tenant_key(home), *FLAGS)]))
        if not vllm.installed():
            print("vLLM is not set up, so there is nothing to compare with; `make bench-peers` does it.")
            yield servers
            return
        try:
            servers = servers + stack.enter_context(running([vllm.renderer(folder, *FLAGS)]))
        except ServerFailed as exc:
            print(f"vLLM's render server does not start with these parsers, so there is nothing to compare with: {exc}")
        yield servers


def check_same_messages(servers: Sequence[Server], stream: Stream) -> None:
    """Every way by every server: what is compared in speed must be the same work."""
    messages = {}
    for server in servers:
        with only(server):
            messages[f"{server.name}, whole"] = essence([asyncio.run(ask_whole(server, stream))["choices"][0]["message"]])
            if server.name == ours.NAME:
                chunks, _ = asyncio.run(in_session(server, stream, at_once=True))
                messages[f"{server.name}, session"] = essence([chunk["choices"][0]["delta"] for chunk in chunks])
    if any(message != next(iter(messages.values())) for message in messages.values()):
        raise SystemExit(f"The servers answer differently, so their speeds cannot be compared: {messages}")


def essence(deltas: Sequence[Mapping[str, Any]]) -> tuple[str, str, Any]:
    """Reasoning, content, and the arguments of the call, whose JSON a server may write in its own way."""
    reasoning = "".join(delta.get("reasoning") or "" for delta in deltas)
    content = "".join(delta.get("content") or "" for delta in deltas)
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    arguments = "".join(call["function"].get("arguments") or "" for call in calls)
    return reasoning, content, json.loads(arguments)


def alternate(servers: Sequence[Server], stream: Stream, rounds: int) -> Samples:
    """Every way, by every server in turn, as often as there are rounds; call by call only once, where it takes minutes."""
    results: Samples = defaultdict(lambda: defaultdict(list))

    def note(name: str, server: Server, seconds: float) -> None:
        results[Figure(name, "ms", more_is_better=False)][server.name].append(seconds * 1e3)

    for number in range(rounds):
        for server in servers if number % 2 == 0 else servers[::-1]:
            print(f"Round {number + 1} of {rounds}: {server.name}", flush=True)
            with only(server):
                note("whole", server, median(asyncio.run(whole_seconds(server, stream))))
                if server.name == ours.NAME:
                    note("session, at once", server, asyncio.run(in_session(server, stream, at_once=True))[1])
                    note("session, one by one", server, asyncio.run(in_session(server, stream, at_once=False))[1])
                if number == 0:
                    note("stateless, call by call", server, asyncio.run(stateless_seconds(server, stream)))
    return results


async def ask_whole(server: Server, stream: Stream) -> dict[str, Any]:
    async with session(server) as http:
        return dict(json.loads(await post(http, json.dumps(stream.whole).encode())))


async def whole_seconds(server: Server, stream: Stream) -> list[float]:
    body, times = json.dumps(stream.whole).encode(), []
    async with session(server) as http:
        for _ in range(20):
            begun = time.perf_counter()
            await post(http, body)
            times.append(time.perf_counter() - begun)
    return times


async def in_session(server: Server, stream: Stream, *, at_once: bool) -> tuple[list[dict[str, Any]], float]:
    """The chunks, and the seconds from the first sent to the last received. All reading of them happens after the clock has stopped."""
    frames = [
        json.dumps({"type": "chunk", "session_id": "s", "seq": seq, "generate_chunk": chunk}) for seq, chunk in enumerate(stream.chunks)
    ]
    async with session(server) as http, asyncio.timeout(SECONDS), http.ws_connect(SESSION) as socket:
        await socket.send_str(json.dumps({"type": "open", "session_id": "s", **stream.opening}))
        await socket.receive_str()
        begun = time.perf_counter()
        if at_once:
            sending = asyncio.create_task(send_all(socket, frames))
            answers = [await socket.receive_str() for _ in frames]
            await sending
        else:
            answers = []
            for frame in frames:
                await socket.send_str(frame)
                answers.append(await socket.receive_str())
        seconds = time.perf_counter() - begun
    return [json.loads(answer)["chunk"] for answer in answers], seconds


async def send_all(socket: aiohttp.ClientWebSocketResponse, frames: Sequence[str]) -> None:
    for frame in frames:
        await socket.send_str(frame)


async def stateless_seconds(server: Server, stream: Stream) -> float:
    """One call a token, each with the state that the last one gave back."""
    state = None
    async with session(server) as http, asyncio.timeout(SECONDS):
        begun = time.perf_counter()
        for chunk in stream.chunks:
            body = {"stream": True, "generate_chunk": chunk, "stream_state": state, **stream.opening}
            state = json.loads(await post(http, json.dumps(body).encode()))["stream_state"]
        return time.perf_counter() - begun


def session(server: Server) -> aiohttp.ClientSession:
    return client(server.url, server.command.headers, SECONDS)


async def post(http: aiohttp.ClientSession, body: bytes) -> bytes:
    async with http.post(DERENDER, data=body) as response:
        answer = await response.read()
        if response.status != 200:
            raise SystemExit(f"{DERENDER} answered {response.status}: {answer[:300]!r}")
        return answer


def report_network(results: Samples) -> None:
    ways = {figure.name: median(samples[ours.NAME]) for figure, samples in results.items()}
    print("\n  Ours against its own whole derender: " + ", ".join(f"{name} {ms / ways['whole']:.1f}" for name, ms in ways.items()))


if __name__ == "__main__":
    main()
