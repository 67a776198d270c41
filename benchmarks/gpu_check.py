"""Checks and times the engine on a CUDA device, where there is one.

    python benchmarks/gpu_check.py [--model NAME-OR-PATH] [--quick] [--device cpu]

For float32 and bfloat16: greedy tokens against transformers' `generate`, log-probabilities against a float32 forward, seeded draws
alone and in company and against the exact distribution; then tokens a second at 1, 8 and 32 streams, with CUDA graphs and without. Ends
with status 1 if a check failed. `--device cpu` runs the same on the processor, which shows that this script itself works.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from harness.works import prompt
from msgspec.structs import replace
from transformers import AutoModelForCausalLM, GenerationConfig

from inference.engine.client import EngineClient
from inference.engine.config import EngineConfig
from inference.engine.pages import PAGE
from inference.protocol.engine import EngineRequest, Row, Sampling
from tokenry.model_store import find_model

DTYPES = ("float32", "bfloat16")
MARGIN = {"float32": 2e-3, "bfloat16": 0.3}  # nats by which an equally good token may trail the best: 8 bits of mantissa in all 30 layers
LOGPROB = {"float32": 1e-3, "bfloat16": 0.3}
DRAWS_Z = 4.0  # a right sampler fails once in 30,000 runs
LENGTHS = (1, 2, 7, 16, 33, 64, 100, 128, 200, 256, 384, 512)


@dataclass
class Verdicts:
    failed: list[str] = field(default_factory=list)

    def say(self, passed: bool, text: str) -> None:
        print(f"  {'ok    ' if passed else 'FAILED'} {text}", flush=True)
        if not passed:
            self.failed.append(text)


@dataclass(frozen=True)
class Result:
    """What one request gave: its tokens, the candidates of each where they were asked for, and what the prefix cache spared it."""

    tokens: list[int]
    rows: list[Row]
    cached_tokens: int


class Reference:
    """transformers' own forward and `generate` on the same device: what the engine must agree with."""

    def __init__(self, folder: Path, device: str) -> None:
        self.device = device
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
        self.vocabulary = int(self.model.config.vocab_size)

    @torch.inference_mode()
    def greedy(self, ids: list[int], count: int) -> list[int]:
        config = GenerationConfig(max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
        return list(self.model.generate(torch.tensor([ids], device=self.device), generation_config=config)[0, len(ids) :].tolist())

    @torch.inference_mode()
    def logprobs(self, ids: list[int], count: int) -> torch.Tensor:
        """Log-probabilities of the last `count` tokens' positions, [count, vocabulary], on the processor."""
        logits = self.model(torch.tensor([ids], device=self.device)).logits[0, -count - 1 : -1]
        return torch.log_softmax(logits.double(), -1).cpu()


def main() -> None:
    options = arguments()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("There is no CUDA device here, so the engine's CUDA path was neither checked nor timed.")
        return
    folder = find_model(options.model)
    torch.backends.cuda.matmul.allow_tf32 = False  # a reference that rounds to 10 bits would be none
    print(f"{device_name(options.device)}, torch {torch.__version__}, {folder.name}")
    reference, verdicts = Reference(folder, options.device), Verdicts()
    for dtype in DTYPES if options.device == "cuda" else DTYPES[:1]:
        config = EngineConfig(model=str(folder), device=options.device, dtype=dtype, max_model_len=2048)
        print(f"\n{dtype}")
        asyncio.run(check(config, reference, verdicts, options.quick))
        asyncio.run(time_all(config, options.quick))
    sys.exit(1 if verdicts.failed else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="a folder, or the name of a model that was pulled")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="fewer prompts, draws and tokens")
    return parser.parse_args()


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "the processor"


@asynccontextmanager
async def engine(config: EngineConfig) -> AsyncIterator[EngineClient]:
    client = EngineClient(config)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def check(config: EngineConfig, reference: Reference, verdicts: Verdicts, quick: bool) -> None:
    async with engine(config) as client:
        await check_greedy(client, config.dtype, reference, verdicts, LENGTHS[:5] if quick else LENGTHS, 8 if quick else 48)
        await check_company(client, verdicts, 7 if quick else 31)
        await check_draws(client, config.dtype, reference, verdicts, 256 if quick else 8192)


async def check_greedy(
    client: EngineClient, dtype: str, reference: Reference, verdicts: Verdicts, lengths: Sequence[int], count: int
) -> None:
    """All prompts at once, twice. Where a token differs from `generate`'s, the reference must find both about equally likely."""
    prompts = [prompt(Random(length), length) for length in lengths]
    greedy = [reference.greedy(ids, count) for ids in prompts]
    for state in ("cold", "once more"):
        asked = [(ids, Sampling(temperature=0.0, max_tokens=count, ignore_eos=True, logprobs=20)) for ids in prompts]
        results = await together(client, asked)
        equal, behind, off = 0, 0.0, 0.0
        for ids, tokens, result in zip(prompts, greedy, results, strict=True):
            expected = reference.logprobs(ids + result.tokens, count)
            equal += result.tokens == tokens
            chosen = expected[torch.arange(count), torch.tensor(result.tokens)]
            behind = max(behind, float((expected.max(-1).values - chosen).max()))
            off = max(off, *(abs(logprob - float(expected[i, tid])) for i, row in enumerate(result.rows) for tid, logprob, _ in row))
        cached = sum(result.cached_tokens for result in results)
        told = f"greedy, {state}, {cached} tokens from the prefix cache: {equal} of {len(prompts)} outputs equal generate's"
        verdicts.say(behind <= MARGIN[dtype], f"{told}; no token is more than {behind:.2g} behind the likeliest")
        verdicts.say(off <= LOGPROB[dtype], f"log-probabilities of 20 candidates: at most {off:.2g} from a float32 forward")
    whole = sum((length - 1) // PAGE * PAGE for length in lengths)
    verdicts.say(cached >= whole, "whole pages of a prompt that was seen before are not computed again")


async def check_company(client: EngineClient, verdicts: Verdicts, others: int) -> None:
    """A seeded request draws the same tokens alone and among others."""
    asked = (prompt(Random(1), 40), Sampling(temperature=1.0, top_p=0.9, seed=7, max_tokens=16, ignore_eos=True))
    company = [(prompt(Random(i), 20 + i), Sampling(temperature=1.0, seed=i, max_tokens=16, ignore_eos=True)) for i in range(others)]
    alone = (await together(client, [asked]))[0].tokens
    among = (await together(client, [*company, asked]))[-1].tokens
    verdicts.say(alone == among, f"a seeded request draws the same alone and among {others} others")


async def check_draws(client: EngineClient, dtype: str, reference: Reference, verdicts: Verdicts, count: int) -> None:
    """Chi-squared of seeded draws of one token against the reference's distribution, rare tokens taken together."""
    ids = prompt(Random(5), 24)  # the default model has many likely tokens after it, and no very likely one
    exact = reference.logprobs([*ids, 0], 1)[0].exp()
    asked = [(ids, Sampling(temperature=1.0, seed=seed, max_tokens=1, ignore_eos=True)) for seed in range(count)]
    results = [result for start in range(0, count, 256) for result in await together(client, asked[start : start + 256])]
    drawn = Counter(result.tokens[0] for result in results)
    cells = expected_and_seen(exact, drawn, count)
    z = chi_squared_z(cells)
    slack = 1.0 if dtype == "float32" else 2.0  # bfloat16 draws from a slightly other distribution, and enough draws see that
    told = f"{count} seeded draws over {len(cells)} cells: chi-squared {z:+.1f} standard deviations from what is expected"
    verdicts.say(len(cells) >= 3 and z < DRAWS_Z * slack, told)


def expected_and_seen(exact: torch.Tensor, drawn: Counter[int], count: int) -> list[tuple[float, int]]:
    """One cell for every token that should come five times or more, and one for all others."""
    cells = [(float(p) * count, drawn[int(tid)]) for p, tid in zip(*torch.topk(exact, 1000), strict=True) if float(p) * count >= 5]
    rest = (count - sum(expected for expected, _ in cells), count - sum(seen for _, seen in cells))
    return [*cells, rest] if rest[0] >= 5 else cells


def chi_squared_z(cells: Sequence[tuple[float, int]]) -> float:
    """How unusual the draws are, as a normal deviate (Wilson and Hilferty's approximation)."""
    freedom = max(1, len(cells) - 1)
    statistic = sum((seen - expected) ** 2 / expected for expected, seen in cells)
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)


async def time_all(config: EngineConfig, quick: bool) -> None:
    """Tokens a second with CUDA graphs and without, side by side."""
    settings = graph_settings(config)
    length, count = (32, 8) if quick else (128, 128)
    speeds = {name: await time_streams(setting, (1, 8, 32), length, count) for name, setting in settings.items()}
    for streams in (1, 8, 32):
        shown = ", ".join(f"{name} {speed[streams]:,.0f}" for name, speed in speeds.items())
        values = [speed[streams] for speed in speeds.values()]
        ratio = f" (ratio {values[0] / values[1]:.2f})" if len(values) == 2 else ""
        print(f"  {streams:>2} streams, {length} in, {count} out, tokens a second: {shown}{ratio}")


def graph_settings(config: EngineConfig) -> dict[str, EngineConfig]:
    if config.device != "cuda":
        return {"as it is": config}
    return {f"graphs {'on' if on else 'off'}": replace(config, cuda_graphs=on) for on in (True, False)}


async def time_streams(config: EngineConfig, streams: Sequence[int], length: int, count: int) -> dict[int, float]:
    sampling = Sampling(temperature=0.0, max_tokens=count, ignore_eos=True)
    speeds = {}
    async with engine(config) as client:
        for number in streams:
            for repeat in range(2):  # the first one warms up: graphs are captured, kernels are chosen
                asked = [(prompt(Random(100 * repeat + i), length), sampling) for i in range(number)]
                begun = time.perf_counter()
                await together(client, asked)
                speeds[number] = number * count / (time.perf_counter() - begun)
    return speeds


async def together(client: EngineClient, asked: Sequence[tuple[list[int], Sampling]]) -> list[Result]:
    """All of them at once, in the order in which they were asked."""
    return list(await asyncio.gather(*(one(client, ids, sampling) for ids, sampling in asked)))


async def one(client: EngineClient, ids: list[int], sampling: Sampling) -> Result:
    tokens: list[int] = []
    rows: list[Row] = []
    cached = 0
    async with client.generate(EngineRequest(id=f"{Random().getrandbits(64):x}", token_ids=ids, sampling=sampling)) as outputs:
        async for output in outputs:
            if output.error is not None:
                raise RuntimeError(f"The engine failed: {output.error}")
            cached = output.cached_tokens
            for choice in output.choices:
                tokens += choice.token_ids
                rows += choice.rows if choice.rows is not None else []
    return Result(tokens, rows, cached)


if __name__ == "__main__":
    main()
