"""Medians over rounds, and ours against each peer, as lines that fit a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One thing that is measured. `more_is_better` decides how a ratio reads: it is always "ours is so many times as good"."""

    name: str
    unit: str
    more_is_better: bool = True


Samples = Mapping[str, Sequence[float]]
"""By server: one value a round. A server without a value is not in it."""


def lines(figures: Mapping[Figure, Samples], ours: str) -> list[str]:
    """One line a figure and server: median, lowest and highest round, and what ours is against it."""
    rows = [(figure, server, values) for figure, samples in figures.items() for server, values in samples.items()]
    wide = max((len(figure.name) for figure in figures), default=0)
    return [line(figure, server, values, figures[figure].get(ours), ours, wide) for figure, server, values in rows]


def line(figure: Figure, server: str, values: Sequence[float], reference: Sequence[float] | None, ours: str, wide: int) -> str:
    spread = f"{min(values):,.4g} to {max(values):,.4g}" if len(values) > 1 else ""
    ratio = "" if not reference or server == ours else f"ours is {as_good(median(reference), median(values), figure):.2f} times as good"
    return f"  {figure.name:<{wide}} {server:<21} {median(values):>8,.4g} {figure.unit:<8}  {spread:<19} {ratio}".rstrip()


def as_good(ours: float, theirs: float, figure: Figure) -> float:
    better, worse = (ours, theirs) if figure.more_is_better else (theirs, ours)
    return better / worse if worse else float("inf")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of all lies, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
