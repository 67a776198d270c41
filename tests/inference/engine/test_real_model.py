"""The default model through a node: its greedy tokens are those of `model.generate`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.conftest import Scene
from tests.inference.engine.running import prompt
from tests.world import NODE_SECRET

NEW = 8
PROMPTS = [prompt(length, vocabulary=49_000) for length in (1, 2, 16, 17, 60, 129, 300, 512)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected(model_folder: Path) -> list[list[int]]:
    model: Any = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    asked = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    return [model.generate(torch.tensor([ids]), **asked)[0, len(ids) :].tolist() for ids in PROMPTS]


async def ask(client: httpx.AsyncClient, ids: list[int], salt: str) -> tuple[list[int], int]:
    """The tokens, and how many of the prompt were in the prefix cache."""
    sampling = {"temperature": 0, "max_tokens": NEW, "min_tokens": NEW}
    body = {"token_ids": ids, "sampling_params": sampling, "cache_salt": salt}
    answer = (await client.post("/inference/v1/generate", json=body)).json()
    details = answer["usage"].get("prompt_tokens_details")
    return answer["choices"][0]["token_ids"], details["cached_tokens"] if details else 0


async def test_greedy_tokens(real: Scene, expected: list[list[int]]) -> None:
    """Alone, together, and from the prefix cache."""
    headers = {"Authorization": f"Bearer {NODE_SECRET}"}
    async with httpx.AsyncClient(base_url=real.node.url, headers=headers, timeout=120) as client:
        alone = [await ask(client, ids, "alone") for ids in PROMPTS]
        together = await asyncio.gather(*(ask(client, ids, "together") for ids in PROMPTS))
        warm = await asyncio.gather(*(ask(client, ids, "together") for ids in PROMPTS))
    assert together == alone == [(tokens, 0) for tokens in expected]
    assert warm == [(tokens, (len(ids) - 1) // 16 * 16) for ids, tokens in zip(PROMPTS, expected, strict=True)]
