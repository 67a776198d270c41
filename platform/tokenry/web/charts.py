"""Charts as data. `static/web/charts.js` draws them with the Chart.js that unfold ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any


def bars(days: Sequence[date], stacks: Mapping[str, Sequence[int | float]]) -> dict[str, Any]:
    """One bar a day, the stacks one upon another in this order."""
    labels = [f"{day.day} {day:%b}" for day in days]
    return {"labels": labels, "datasets": [{"label": name, "data": list(values)} for name, values in stacks.items()]}
