"""A node's metrics, by the names that vLLM gives them where it has one, so that its dashboards read ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference.engine.engine import Engine

FINISHES = ("stop", "length", "abort", "error")


def of_engine(engine: Engine) -> dict[str, float]:
    """Sample name with labels -> value, since the start where it counts anything."""
    scheduler, counters, cache = engine.scheduler, engine.counters, engine.scheduler.memory.counts
    values: dict[str, float] = {
        "vllm:num_requests_running": scheduler.running,
        "vllm:num_requests_waiting": scheduler.waiting,
        "vllm:kv_cache_usage_perc": scheduler.memory.usage(),
        "vllm:prefix_cache_queries_total": cache.queried,
        "vllm:prefix_cache_hits_total": cache.hit,
        "vllm:num_preemptions_total": scheduler.preemptions,
        "vllm:prompt_tokens_total": counters["prompt_tokens"],
        "vllm:generation_tokens_total": counters["generation_tokens"],
        "tokenry:prefix_cache_evicted_tokens_total": cache.evicted,
        "tokenry:engine_steps_total": counters["steps"],
        "tokenry:engine_rows_total": counters["rows"],
    }
    values |= {f'vllm:request_success_total{{finished_reason="{reason}"}}': counters[f"finished_{reason}"] for reason in FINISHES}
    values |= {f'tokenry:step_seconds_total{{phase="{phase}"}}': seconds for phase, seconds in engine.executor.phases.items()}
    return values | engine.histograms.samples()


def exposition(values: dict[str, float]) -> str:
    """The values in Prometheus's text format."""
    lines: list[str] = []
    described: set[str] = set()
    for sample, value in values.items():
        name, kind = family(sample.partition("{")[0])
        if name not in described:
            described.add(name)
            lines.append(f"# TYPE {name} {kind}")
        lines.append(f"{sample} {value!r}")
    return "\n".join(lines) + "\n"


def family(name: str) -> tuple[str, str]:
    """The metric that a sample of this name belongs to, and its type: in Prometheus's text, names tell."""
    for ending in ("_bucket", "_count", "_sum"):
        if name.endswith(ending):
            return name.removesuffix(ending), "histogram"
    return name, "counter" if name.endswith("_total") else "gauge"
