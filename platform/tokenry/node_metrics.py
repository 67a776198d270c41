"""A node's `/metrics`: the engine's counters in Prometheus' text format, under vLLM's names where vLLM has one."""

from __future__ import annotations

from inference.engine.client import EngineClient


def exposition(engine: EngineClient) -> bytes:
    lines: list[str] = []
    for name, (kind, help_text, value) in engine.stats().items():
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name} {value}"]
    return ("\n".join(lines) + "\n").encode()
