"""Many at once give what each would give alone, and nobody learns of anybody else."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest

from tests.conftest import Scene
from tests.world import Tenant, script

HI = [{"role": "user", "content": "Hi"}]
STREAMS = 32
WORDS = ["What is the capital of France?", "Tell me about rain.", "Count to five.", "Name a colour.", "Why do cats purr?", "Write a haiku."]


def scripted_requests() -> list[dict[str, Any]]:
    """Of various lengths, with logprobs, stop strings and several choices; some of their steps take a while."""
    rng = random.Random(3)
    made = []
    for number in range(STREAMS):
        text = f"answer {number}: é😀日 " + "".join(rng.choice("abcdefgh ") for _ in range(rng.randrange(5, 60)))
        steps = [{"ids": [byte], "wait_ms": rng.choice([0, 0, 1, 3])} for byte in text.encode()] + [{"ids": [258]}]
        fields: dict[str, Any] = {"max_tokens": 200, "stream": True, **script(*steps)}
        made.append({**fields, "messages": HI, "logprobs": number % 2 == 0, "n": 1 + number % 3 // 2, "stop": ["zz", "hh"][: number % 3]})
    return made


def real_requests() -> list[dict[str, Any]]:
    chats = [[{"role": "user", "content": f"{word} ({number})"}] for number in range(3) for word in WORDS]
    asked = {"temperature": 0, "stream": True, "logprobs": True}
    return [{**asked, "messages": chats[n % len(chats)], "max_tokens": 8 + n % 9} for n in range(STREAMS)]


async def answer(client: httpx.AsyncClient, body: dict[str, Any]) -> list[Any]:
    """What a stream says, without its id and its times: per choice its text, its token strings and how it ended."""
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        events = [line[6:] async for line in response.aiter_lines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return [said([choice for choice in choices if choice["index"] == index]) for index in range(body.get("n", 1))]


def said(choices: list[dict[str, Any]]) -> tuple[str, list[str], str | None]:
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    tokens = [entry["token"] for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    return text, tokens, choices[-1]["finish_reason"]


async def one_by_one(tenants: list[Tenant], requests: list[dict[str, Any]]) -> list[Any]:
    answers = []
    for tenant, body in zip(tenants, requests, strict=True):
        async with tenant.asynchronous() as client:
            answers.append(await answer(client, body))
    return answers


async def at_once(tenants: list[Tenant], requests: list[dict[str, Any]]) -> list[Any]:
    async def ask(tenant: Tenant, body: dict[str, Any]) -> list[Any]:
        async with tenant.asynchronous() as client:
            return await answer(client, body)

    return await asyncio.gather(*(ask(tenant, body) for tenant, body in zip(tenants, requests, strict=True)))


async def test_many_streams_of_two_tenants_are_each_as_alone(scripted: Scene) -> None:
    tenants, requests = [scripted.alice, scripted.bob] * (STREAMS // 2), scripted_requests()
    alone = await one_by_one(tenants, requests)
    assert await at_once(tenants, requests) == alone
    assert all(token.startswith("token_id:") for one in alone[1::2] for _, tokens, _ in one for token in tokens), "Bob's default"
    assert not any(token.startswith("token_id:") for one in alone[::2] for _, tokens, _ in one for token in tokens), "Alice has none"


@pytest.mark.slow
async def test_many_streams_of_the_real_model_are_each_as_alone(real: Scene) -> None:
    """Greedy in float32: what else is in the batch must not show."""
    tenants, requests = [real.alice, real.bob] * (STREAMS // 2), real_requests()
    alone = await one_by_one(tenants, requests)
    assert await at_once(tenants, requests) == alone


async def test_errors_go_to_whoever_made_them(scripted: Scene) -> None:
    """Every second request fails, at the door or in the engine; those between are whole."""
    good = {"messages": HI, "stream": True, **script(*[{"ids": [97], "wait_ms": 2}] * 30, {"ids": [258]})}
    refused, failing = {**good, "temperature": 9}, {**good, **script({"ids": [97], "wait_ms": 20}, {"ids": [], "finish": "error"})}

    async def ask(tenant: Tenant, body: dict[str, Any]) -> str:
        async with tenant.asynchronous() as client:
            return (await client.post("/v1/chat/completions", json=body)).text

    bodies = [good, refused, good, failing] * 6
    tenants = [scripted.alice, scripted.bob] * 12
    answers = await asyncio.gather(*(ask(tenant, body) for tenant, body in zip(tenants, bodies, strict=True)))
    assert all('"finish_reason":"stop"' in text and '"error"' not in text for text in answers[::2])
    assert all('"param":"temperature"' in text for text in answers[1::4])
    assert all('"code":500' in text and text.endswith("data: [DONE]\n\n") for text in answers[3::4])


def test_the_same_ids_of_two_tenants_meet_nowhere(scripted: Scene) -> None:
    """Each sees its own id and nothing of what the platform puts before it."""
    for tenant, other in ((scripted.alice, scripted.bob), (scripted.bob, scripted.alice)):
        body = {"token_ids": [72], "request_id": "mine", "sampling_params": {"max_tokens": 1}}
        response = tenant.http.post("/inference/v1/generate", json=body)
        assert response.json()["request_id"] == "generate-tokens-mine"
        for secret in (f"{tenant.id}.mine", f"{other.id}.mine", other.key):
            assert secret not in response.text + str(response.headers)


def test_a_state_of_one_tenant_is_plain_data_to_another(scripted: Scene) -> None:
    def call(tenant: Tenant, ids: list[int], state: Any) -> dict[str, Any]:
        chunk = {"request_id": "r", "choices": [{"index": 0, "token_ids": ids}]}
        body = {"stream": True, "generate_chunk": chunk, "stream_state": state}
        made: dict[str, Any] = tenant.http.post("/v1/chat/completions/derender", json=body).json()
        return made

    state = call(scripted.alice, [72, 195], None)["stream_state"]
    assert call(scripted.bob, [169], state)["chunk"]["choices"][0]["delta"]["content"] == "é"


def test_a_tenant_cannot_say_that_it_is_another(scripted: Scene) -> None:
    """The headers by which a platform tells a node whose request it is mean nothing at the platform's own door."""
    headers = {"X-Tokenry-Tenant": scripted.bob.id, "X-Tokenry-Weight": "1000"}
    body = {"messages": HI, "logprobs": True, **script({"ids": [72], "finish": "stop"})}
    response = scripted.alice.http.post("/v1/chat/completions", json=body, headers=headers).json()
    assert response["choices"][0]["logprobs"]["content"][0]["token"] == "H"
