"""How long requests waited and how large they were, as Prometheus's histograms, under vLLM's names and with its bounds.

Counted by the computing thread, for each row of a step: a bisection and two additions, where prometheus-client's own type takes a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from inference.engine.request import Request, Sequence

FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0
)  # fmt: skip
PAUSE = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUEST = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0
)  # fmt: skip
OWN_ENDS = {"stop", "length"}


class Histogram:
    """`bounds` are the upper ends of the buckets, ascending; one without an end follows."""

    def __init__(self, name: str, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._samples = [*(f'{name}_bucket{{le="{bound}"}}' for bound in (*bounds, "+Inf")), f"{name}_count", f"{name}_sum"]

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self) -> dict[str, float]:
        """Sample name -> value; a bucket counts those below it too."""
        cumulative = list(accumulate(self.counts))
        return dict(zip(self._samples, [*cumulative, cumulative[-1], self.sum], strict=True))


class Histograms:
    """Times are in seconds on the clock of `time.monotonic`, which a machine's processes share."""

    def __init__(self, max_len: int) -> None:
        tokens = tuple(float(bound) for bound in one_two_five(max_len))
        self.queued = Histogram("vllm:request_queue_time_seconds", REQUEST)
        self.first_token = Histogram("vllm:time_to_first_token_seconds", FIRST_TOKEN)
        self.pause = Histogram("vllm:inter_token_latency_seconds", PAUSE)
        self.whole = Histogram("vllm:e2e_request_latency_seconds", REQUEST)
        self.prompt = Histogram("vllm:request_prompt_tokens", tokens)
        self.generated = Histogram("vllm:request_generation_tokens", tokens)

    def begun(self, request: Request, now: float) -> None:
        """A step works on it. Only the first one counts."""
        if request.begun_at is None:
            request.begun_at = now
            self.queued.observe(now - request.arrived)

    def spoke(self, seq: Sequence, now: float) -> None:
        """Tokens came. Pauses are those within a choice, the first token is that of the first choice which has one."""
        if seq.spoke_at is not None:
            self.pause.observe(now - seq.spoke_at)
        elif all(choice.spoke_at is None for choice in seq.request.choices):
            self.first_token.observe(now - seq.request.arrived)
        seq.spoke_at = now

    def over(self, request: Request, now: float) -> None:
        """It ended. Only those count that nobody and nothing ended early."""
        if all(choice.finish_reason in OWN_ENDS for choice in request.choices):
            self.whole.observe(now - request.arrived)
            self.prompt.observe(request.prompt_len)
            self.generated.observe(sum(choice.generated for choice in request.choices))

    def samples(self) -> dict[str, float]:
        histograms: list[Histogram] = list(vars(self).values())
        return {sample: value for histogram in histograms for sample, value in histogram.samples().items()}


def one_two_five(highest: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... up to `highest`."""
    return [bound for power in range(len(str(highest))) for bound in (10**power, 2 * 10**power, 5 * 10**power) if bound <= highest]
