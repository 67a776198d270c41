"""The `openai` package against the running server: what most callers will use."""

from __future__ import annotations

import openai
import pytest

from tests.conftest import Scene
from tests.world import script

HI = [{"role": "user", "content": "Hi"}]


def extra(*steps):
    return {"extra_body": script(*steps)}


@pytest.fixture
def client(scripted: Scene):
    return openai.OpenAI(base_url=scripted.alice.url + "/v1", api_key=scripted.alice.key, max_retries=0)


def test_an_answer_with_logprobs(client):
    rows = [[[72, -0.25, 1], [73, -1.5, 2]]]
    steps = {"ids": [72], "rows": rows, "finish": "stop"}
    answer = client.chat.completions.create(model="m", messages=HI, logprobs=True, top_logprobs=2, **extra(steps))
    assert answer.choices[0].message.content == "H"
    assert [(t.token, t.logprob) for t in answer.choices[0].logprobs.content[0].top_logprobs] == [("H", -0.25), ("I", -1.5)]
    assert answer.usage.completion_tokens == 1


def test_a_stream_with_usage(client):
    steps = [{"ids": [b]} for b in b"Hello"] + [{"ids": [258]}]
    stream = client.chat.completions.create(model="m", messages=HI, stream=True, stream_options={"include_usage": True}, **extra(*steps))
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello"
    assert chunks[-1].usage.completion_tokens == 6


async def test_the_asynchronous_client(scripted: Scene):
    async with openai.AsyncOpenAI(base_url=scripted.alice.url + "/v1", api_key=scripted.alice.key) as client:
        stream = await client.completions.create(model="m", prompt="Hi", stream=True, **extra({"ids": list(b"yes"), "finish": "stop"}))
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "yes"


def test_its_error_classes(client, scripted: Scene):
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="m", messages=HI, temperature=9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nope", messages=HI)
    with pytest.raises(openai.AuthenticationError) as unknown:
        openai.OpenAI(base_url=scripted.alice.url + "/v1", api_key="sk-x", max_retries=0).models.list()
    assert unknown.value.code == "invalid_api_key"


def test_an_error_inside_a_stream_is_raised(client):
    steps = [{"ids": [72], "wait_ms": 30}, {"ids": [], "finish": "error", "wait_ms": 30}]
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="m", messages=HI, stream=True, **extra(*steps)))


def test_models(client):
    assert [model.id for model in client.models.list()] == ["m"]
    assert client.models.retrieve("m").id == "m"
