"""A node's metrics: what they count, and that Prometheus can read them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inference.engine.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.histograms import Histogram, one_two_five
from inference.engine.load import load_engine
from inference.engine.metrics import exposition
from tests.conftest import Scene
from tests.inference.engine.running import request, run
from tests.world import TOKENIZERS, script

HISTOGRAMS = (
    "vllm:request_queue_time_seconds", "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
    "vllm:e2e_request_latency_seconds", "vllm:request_prompt_tokens", "vllm:request_generation_tokens",
)  # fmt: skip


class Clock:
    """Stands where it is put."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


@pytest.fixture
def engine() -> Engine:
    return load_engine(EngineConfig(engine="scripted", tokenizer=str(TOKENIZERS / "t1"), max_num_seqs=2))[0]


def step_after(engine: Engine, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    engine.step()


def counted(values: dict[str, float], name: str) -> tuple[float, float]:
    return values[f"{name}_count"], pytest.approx(values[f"{name}_sum"])


def test_times_of_a_request(engine: Engine, clock: Clock) -> None:
    """Sent 2 s before it is read, run 3 s later, then a token each second."""
    wire = request("r", [1, 2, 3], script=[{"ids": [5]}], max_tokens=3)
    wire.arrived = clock.now
    clock.now += 2
    engine.add(wire)
    for seconds in (3, 1, 1):
        step_after(engine, clock, seconds)
    values = engine.stats()
    assert {name: counted(values, name) for name in HISTOGRAMS} == dict(
        zip(HISTOGRAMS, [(1, 5), (1, 5), (2, 2), (1, 7), (1, 3), (1, 3)], strict=True)
    )
    assert values['vllm:inter_token_latency_seconds_bucket{le="0.75"}'] == 0
    assert values['vllm:inter_token_latency_seconds_bucket{le="1.0"}'] == 2
    assert values['vllm:time_to_first_token_seconds_bucket{le="2.5"}'] == 0
    assert values['vllm:time_to_first_token_seconds_bucket{le="5.0"}'] == 1


def test_who_waits_for_a_row_is_queued(engine: Engine, clock: Clock) -> None:
    for number in range(3):
        engine.add(request(f"r{number}", [1], script=[{"ids": [5]}], max_tokens=2))
    for seconds in (1, 1, 1, 1):
        step_after(engine, clock, seconds)
    assert counted(engine.stats(), "vllm:request_queue_time_seconds") == (3, 1 + 1 + 3)


def test_choices_have_one_first_token_and_pauses_of_their_own(engine: Engine, clock: Clock) -> None:
    engine.add(request("r", [1], script=[{"ids": [5]}], max_tokens=3, n=2))
    while engine.busy:
        step_after(engine, clock, 1)
    values = engine.stats()
    assert counted(values, "vllm:time_to_first_token_seconds") == (1, 1)
    assert counted(values, "vllm:inter_token_latency_seconds") == (4, 4)
    assert counted(values, "vllm:request_generation_tokens") == (1, 6)


def test_what_was_ended_early_is_no_latency(engine: Engine, clock: Clock) -> None:
    engine.add(request("aborted", [1], script=[{"ids": [5]}], max_tokens=5))
    step_after(engine, clock, 1)
    engine.abort(["aborted"])
    run(engine, request("failed", [1], script=[{"ids": [5], "finish": "error"}]))
    values = engine.stats()
    assert values["vllm:time_to_first_token_seconds_count"] == 1
    assert values["vllm:e2e_request_latency_seconds_count"] == values["vllm:request_prompt_tokens_count"] == 0


def test_a_bound_is_in_its_bucket_and_buckets_add_up() -> None:
    histogram = Histogram("h", (1.0, 2.0, 5.0))
    for value in (0.5, 1.0, 1.5, 2.0, 7.0):
        histogram.observe(value)
    assert histogram.samples() == {
        'h_bucket{le="1.0"}': 2, 'h_bucket{le="2.0"}': 4, 'h_bucket{le="5.0"}': 4, 'h_bucket{le="+Inf"}': 5, "h_count": 5, "h_sum": 12.0
    }  # fmt: skip


@pytest.mark.parametrize(("highest", "bounds"), [(1, [1]), (8, [1, 2, 5]), (512, [1, 2, 5, 10, 20, 50, 100, 200, 500])])
def test_bounds_of_tokens(highest: int, bounds: list[int]) -> None:
    assert one_two_five(highest) == bounds


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_prometheus_reads_the_text(engine: Engine) -> None:
    run(engine, request("r", [1], script=[{"ids": [5]}], max_tokens=4))
    read = families(exposition(engine.stats()))
    types = {name: family.type for name, family in read.items()}
    assert types["vllm:num_requests_running"] == "gauge"
    assert types["vllm:generation_tokens"] == "counter"
    for name in HISTOGRAMS:
        assert types[name] == "histogram"
        buckets = [sample for sample in read[name].samples if sample.name == f"{name}_bucket"]
        assert [sample.value for sample in buckets] == sorted(sample.value for sample in buckets)
        assert [float(sample.labels["le"]) for sample in buckets] == sorted(float(sample.labels["le"]) for sample in buckets)
        assert buckets[-1].labels["le"] == "+Inf"
        assert buckets[-1].value == next(sample.value for sample in read[name].samples if sample.name == f"{name}_count")


def test_a_node_shows_them(scripted: Scene) -> None:
    def generated() -> float:
        read = families(scripted.node.node_client.get("/metrics").text)
        return next(sample.value for sample in read["vllm:request_generation_tokens"].samples if sample.name.endswith("_count"))

    before = generated()
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, **script({"ids": [97]})}
    assert scripted.alice.http.post("/v1/chat/completions", json=chat).status_code == 200
    end = time.monotonic() + 10
    while generated() == before and time.monotonic() < end:  # a node's own count is a fraction of a second old
        time.sleep(0.05)
    assert generated() > before
