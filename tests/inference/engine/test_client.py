"""The client with a real process: streams, slow readers, leavers, full queues, crashes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inference.engine.client import EngineClient, Outputs, StartError
from inference.engine.config import EngineConfig
from inference.engine.engine import HOPELESS
from inference.engine.mailbox import SEPARATE, Mailbox
from inference.errors import BadRequest, Unavailable
from inference.protocol.engine import ChoiceOutput, EngineOutput
from tests.inference.engine.running import Answers, prompt, request
from tests.world import TOKENIZERS

SCRIPTED = EngineConfig(engine="scripted", tokenizer=str(TOKENIZERS / "t1"), max_num_seqs=64)
ENDLESS: dict[str, Any] = {"script": [{"ids": [5], "wait_ms": 5}], "max_tokens": 100_000}
GROWTH = 5 << 20  # bytes that 10,000 requests may add: one that is kept takes thousands


@pytest.fixture
async def client() -> AsyncIterator[EngineClient]:
    client = EngineClient(SCRIPTED)
    await client.start()
    yield client
    await client.stop()


async def read(outputs: Outputs) -> Answers:
    answers = Answers()
    async for output in outputs:
        answers.add(output)
    return answers


async def ask(client: EngineClient, name: str, **fields: Any) -> Answers:
    return await read(client.generate(request(name, [72, 105], **fields)))


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 — what is waited for happens in another process
            await asyncio.sleep(0.02)


async def idle(client: EngineClient) -> None:
    """Until the engine says that nothing runs."""
    await eventually(lambda: client.stats().get("vllm:num_requests_running") == 0 and client.stats()["tokenry:requests_open"] == 0)


def worker_pid(client: EngineClient) -> int:
    assert client._process is not None
    assert client._process.pid is not None
    return client._process.pid


def mapped_files(pid: int) -> str:
    maps = Path(f"/proc/{pid}/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    return maps.read_text()


async def test_a_stream(client: EngineClient) -> None:
    assert client.healthy
    assert client.info is not None
    assert (client.info.vocab_size, client.info.max_model_len) == (266, 512)
    answers = await ask(client, "r", script=[{"ids": [1]}, {"ids": [2], "finish": "stop"}])
    assert (answers.tokens, answers.outputs) == ([1, 2], 2)


async def test_many_at_once(client: EngineClient) -> None:
    scripts = {f"r{n}": [{"ids": [n + k]} for k in range(30)] for n in range(100)}
    answers = await asyncio.gather(*(ask(client, name, script=script, max_tokens=30) for name, script in scripts.items()))
    assert [answer.tokens for answer in answers] == [list(range(n, n + 30)) for n in range(100)]


async def test_an_abort_delivers_a_final_output(client: EngineClient) -> None:
    outputs = client.generate(request("r", [1], **ENDLESS))
    await anext(outputs)
    client.abort(["r", "unknown"])
    rest = await read(outputs)
    assert rest.choices[0].finish_reason == "abort"
    client.abort(["r"])


@pytest.mark.parametrize("how", ["close", "with", "dropped", "cancelled"])
async def test_leaving_frees_the_engine(how: str, client: EngineClient) -> None:
    outputs = client.generate(request("r", [1], **ENDLESS))
    await anext(outputs)
    if how == "close":
        await outputs.aclose()
    elif how == "with":
        async with outputs:
            pass
    elif how == "cancelled":
        task = asyncio.create_task(read(outputs))
        del outputs
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
    else:
        del outputs
    gc.collect()
    await idle(client)


async def test_a_wait_with_a_timeout_loses_nothing(client: EngineClient) -> None:
    outputs = client.generate(request("r", [1], script=[{"ids": [5], "wait_ms": 100}, {"ids": [6], "finish": "stop"}]))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(outputs), 0.01)
    assert (await read(outputs)).tokens == [5, 6]


async def test_a_slow_reader_gets_everything_and_holds_up_nobody(client: EngineClient) -> None:
    slow = client.generate(request("slow", [1], script=[{"ids": [5]}], max_tokens=400, logprobs=0))
    assert len((await ask(client, "fast", script=[{"ids": [6]}], max_tokens=400)).tokens) == 400
    await asyncio.sleep(0.1)
    answers = await read(slow)
    assert answers.tokens == [5] * 400
    assert len(answers.choices[0].rows) == 400
    assert answers.outputs <= SEPARATE + 1


async def test_outputs_that_nobody_takes_are_merged_per_choice() -> None:
    mailbox = Mailbox()
    for step in range(SEPARATE + 10):
        choices = [ChoiceOutput(index=index, token_ids=[step], rows=[[(step, 0.0, 1)]]) for index in range(2)]
        mailbox.put(EngineOutput(id="r", choices=choices))
    mailbox.put(EngineOutput(id="r", choices=[ChoiceOutput(index=1, token_ids=[], finish_reason="stop")], finished=True))
    taken = [await mailbox.take() for _ in range(SEPARATE)]
    assert [choice.token_ids for choice in taken[-1].choices] == [list(range(SEPARATE - 1, SEPARATE + 10))] * 2
    assert [choice.finish_reason for choice in taken[-1].choices] == [None, "stop"]
    assert [len(choice.rows or []) for choice in taken[-1].choices] == [11, 11]
    assert [output.finished for output in taken] == [False] * (SEPARATE - 1) + [True]


async def test_a_full_queue_is_refused_at_once() -> None:
    client = EngineClient(msgspec.structs.replace(SCRIPTED, max_num_seqs=2, max_queue=3, max_queue_per_tenant=2))
    await client.start()
    try:
        first = [client.generate(request(f"a{n}", [1], tenant="a", **ENDLESS)) for n in range(4)]
        with pytest.raises(Unavailable, match="tenant"):
            client.generate(request("a4", [1], tenant="a", **ENDLESS))
        other = client.generate(request("b0", [1], tenant="b", **ENDLESS))
        with pytest.raises(Unavailable, match="full"):
            client.generate(request("c0", [1], tenant="c", **ENDLESS))
        for outputs in (*first, other):
            outputs.close()
        assert (await ask(client, "next", tenant="a")).finished
    finally:
        await client.stop()


async def test_a_script_is_checked_before_it_is_sent(client: EngineClient) -> None:
    with pytest.raises(BadRequest) as refusal:
        await ask(client, "r", script=[{"ids": "x"}])
    assert refusal.value.param == "extra_args.script"


async def test_a_value_of_the_wrong_type_ends_that_request_alone(client: EngineClient) -> None:
    running = client.generate(request("r", [1], script=[{"ids": [5], "wait_ms": 50}], max_tokens=5))
    bad = await read(client.generate(request("bad", ["x"])))  # type: ignore[list-item]
    assert bad.error is not None
    assert (await read(running)).tokens == [5] * 5


async def test_a_killed_process_ends_its_requests_and_comes_back(client: EngineClient) -> None:
    outputs = client.generate(request("r", [1], **ENDLESS))
    await anext(outputs)
    os.kill(worker_pid(client), signal.SIGKILL)
    assert (await read(outputs)).error is not None
    with pytest.raises(Unavailable) as refusal:
        await ask(client, "meanwhile")
    assert int(refusal.value.headers["Retry-After"]) >= 1
    await eventually(lambda: client.healthy)
    assert (await ask(client, "next")).finished
    assert client.stats()["tokenry:engine_restarts_total"] == 1


async def test_a_stuck_process_is_replaced() -> None:
    client = EngineClient(msgspec.structs.replace(SCRIPTED, watchdog_s=2.0))
    await client.start()
    try:
        pid = worker_pid(client)
        outputs = client.generate(request("r", [1], **ENDLESS))
        await anext(outputs)
        os.kill(pid, signal.SIGSTOP)
        assert (await read(outputs)).error is not None
        await eventually(lambda: client.healthy)
        assert worker_pid(client) != pid
        assert (await ask(client, "next")).finished
    finally:
        await client.stop()


async def test_an_idle_process_is_not_taken_for_stuck() -> None:
    client = EngineClient(msgspec.structs.replace(SCRIPTED, watchdog_s=1.5))
    await client.start()
    try:
        outputs = client.generate(request("r", [1], script=[{"ids": [5], "wait_ms": 4000, "finish": "stop"}]))
        assert (await read(outputs)).tokens == [5]
        assert client.restarts == 0
    finally:
        await client.stop()


async def test_the_process_ends_with_its_parent(client: EngineClient) -> None:
    """The socket closes when a parent dies, however it dies."""
    process = client._process
    assert process is not None
    assert process._transport is not None
    assert process._popen is not None
    process._transport.abort()
    await eventually(lambda: process._popen is not None and process._popen.poll() is not None)


async def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    client = EngineClient(EngineConfig(engine="scripted", tokenizer=str(tmp_path)))
    with pytest.raises(StartError, match="no vocabulary"):
        await client.start()
    await client.stop()


async def test_the_scripted_engine_loads_no_torch(client: EngineClient) -> None:
    assert "libtorch" not in mapped_files(worker_pid(client))


async def test_a_model_in_its_process(tiny_model: Path) -> None:
    """32 at once give what they give one by one; a script is refused by name."""
    client = EngineClient(EngineConfig(model=str(tiny_model), device="cpu", threads=1, kv_bytes=64 << 20))
    await client.start()
    try:
        fields = [{"seed": n, "max_tokens": 12, "temperature": 0.7 * (n % 3), "logprobs": n % 2 or None} for n in range(32)]
        prompts = [prompt(1 + 5 * n) for n in range(32)]
        together = await asyncio.gather(
            *(read(client.generate(request(f"t{n}", prompts[n], tenant=f"tenant{n % 2}", **fields[n]))) for n in range(32))
        )
        for n in range(32):
            alone = await read(client.generate(request(f"a{n}", prompts[n], **fields[n])))
            assert together[n].tokens == alone.tokens
            assert len(together[n].tokens) == 12
        with pytest.raises(BadRequest, match="script"):
            client.generate(request("s", [5], script=[]))
    finally:
        await client.stop()


async def test_a_process_that_can_do_no_step_is_replaced(tiny_model: Path) -> None:
    """Ids that the model does not know fail the forward; a node refuses them at its door."""
    client = EngineClient(EngineConfig(model=str(tiny_model), device="cpu", threads=1, kv_bytes=64 << 20))
    await client.start()
    try:
        pid = worker_pid(client)
        for number in range(HOPELESS):
            assert (await read(client.generate(request(f"r{number}", [10**6])))).error is not None
        await eventually(lambda: client.restarts == 1 and client.healthy)
        assert worker_pid(client) != pid
        assert len((await read(client.generate(request("next", prompt(5), max_tokens=3)))).tokens) == 3
    finally:
        await client.stop()


@pytest.mark.slow
async def test_memory_is_flat_over_ten_thousand_requests(tiny_model: Path) -> None:
    """Of all kinds, from ever new tenants, some of them left early: neither side keeps anything of what is over."""
    client = EngineClient(EngineConfig(model=str(tiny_model), device="cpu", threads=1, kv_bytes=2 << 20))
    await client.start()
    try:
        await short_requests(client, range(5_000))
        settled = resident_bytes(worker_pid(client))
        await short_requests(client, range(5_000, 15_000))
        assert resident_bytes(worker_pid(client)) - settled < GROWTH
        assert client._open == {}
        assert client._by_tenant == {}
    finally:
        await client.stop()


async def short_requests(client: EngineClient, numbers: range) -> None:
    for start in numbers[::250]:
        await asyncio.gather(*(short_request(client, number) for number in range(start, start + 250)))


async def short_request(client: EngineClient, number: int) -> None:
    tenant, salt = f"tenant{number}", f"salt{number % 7}"
    kinds: list[dict[str, Any]] = [{}, {"n": 2}, {"logprobs": 2}, {"prompt_logprobs": 1}, {"frequency_penalty": 0.5}, {"max_tokens": 400}]
    fields = {"max_tokens": 1 + number % 2, "seed": number, **kinds[number % 6]}
    outputs = client.generate(request(f"r{number}", prompt(1 + number % 40, number), tenant=tenant, cache_salt=salt, **fields))
    if fields["max_tokens"] == 400:
        await anext(outputs)
        outputs.close()
    else:
        assert (await read(outputs)).error is None


def resident_bytes(pid: int) -> int:
    statm = Path(f"/proc/{pid}/statm")
    if not statm.exists():
        pytest.skip("needs /proc")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
