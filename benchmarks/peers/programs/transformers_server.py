"""The smallest server around transformers: `transformers_server.py MODEL PORT generate|continuous`. Greedy, and never ends before its time.

Speaks as much of /inference/v1/generate as the benchmarks ask for: token ids in, a stream of token ids out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch
from aiohttp import web
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.generation.streamers import BaseStreamer

CACHE_BLOCKS = 128  # of 256 tokens
BATCH_TOKENS = 512
NO_END = -1  # no token has this id, so nothing ends before max_new_tokens


class Engine(Protocol):
    def tokens(self, prompt: list[int], count: int) -> AsyncIterator[list[int]]:
        """New tokens, as they come."""


class Generate:
    """`model.generate`, one request after another, in one thread: every other thread would bring an OpenMP pool of its own."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.thread = ThreadPoolExecutor(1)

    async def tokens(self, prompt: list[int], count: int) -> AsyncIterator[list[int]]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[list[int]] = asyncio.Queue()
        work = loop.run_in_executor(self.thread, self.generate, prompt, count, lambda ids: loop.call_soon_threadsafe(queue.put_nowait, ids))
        for _ in range(count):
            yield await queue.get()
        await work

    def generate(self, prompt: list[int], count: int, deliver: Any) -> None:
        config = GenerationConfig(max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
        with torch.inference_mode():
            self.model.generate(torch.tensor([prompt]), generation_config=config, streamer=Streamer(deliver))


class Streamer(BaseStreamer):
    """Passes on every token but the prompt's, which `generate` puts first."""

    def __init__(self, deliver: Any) -> None:
        self.deliver = deliver
        self.prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if self.prompt_seen:
            self.deliver(value.flatten().tolist())
        self.prompt_seen = True

    def end(self) -> None:
        pass


class Continuous:
    """transformers' continuous batching, in its own thread. Left alone it takes nine tenths of the memory for its cache."""

    def __init__(self, model: Any) -> None:
        config = GenerationConfig(max_new_tokens=1, do_sample=False, eos_token_id=NO_END, pad_token_id=0)
        sizes = ContinuousBatchingConfig(num_blocks=CACHE_BLOCKS, max_batch_tokens=BATCH_TOKENS)
        self.manager = model.init_continuous_batching(generation_config=config, continuous_batching_config=sizes)
        self.manager.start()
        self.count = 0

    async def tokens(self, prompt: list[int], count: int) -> AsyncIterator[list[int]]:
        self.count += 1
        name, queue, sent = f"request-{self.count}", asyncio.Queue(), 0
        self.manager.register_result_handler(name, queue.put_nowait)
        self.manager.add_request(prompt, request_id=name, max_new_tokens=count, streaming=True, eos_token_id=NO_END)
        while sent < count:
            result = await queue.get()
            if result.error is not None:
                raise RuntimeError(result.error)
            if len(result.generated_tokens) > sent:
                yield result.generated_tokens[sent:]
                sent = len(result.generated_tokens)


async def generate(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    async for ids in request.app[ENGINE].tokens(body["token_ids"], body["sampling_params"]["max_tokens"]):
        event = {"choices": [{"index": 0, "token_ids": ids}]}
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


ENGINE = web.AppKey("engine", Engine)


def main(folder: str, port: int, batching: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    app = web.Application()
    app[ENGINE] = Generate(model) if batching == "generate" else Continuous(model)
    app.router.add_post("/inference/v1/generate", generate)
    app.router.add_get("/health", lambda _: ok())
    web.run_app(app, host="127.0.0.1", port=port, print=None)


async def ok() -> web.Response:
    return web.Response()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
