"""Stop strings: found wherever the text happens to be cut, and held back while they may still come true (pipeline.md 5.3)."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """The last max(len(stop)) - 1 characters wait, unless the match is to be shown anyway."""

    __slots__ = ("_include", "_stops", "_tail", "_window")

    def __init__(self, stops: Sequence[str], *, include: bool) -> None:
        self._stops = stops
        self._include = include
        self._window = max((len(stop) for stop in stops), default=1) - 1
        self._tail = ""

    def feed(self, text: str, *, check: bool = True) -> tuple[str, str | None]:
        """(text to show, the stop string that ends it). `check` is false while min_tokens forbids an end."""
        seen = self._tail + text
        match = self._first_match(seen) if check and text else None
        if match is not None:
            start, stop = match
            shown = seen[len(self._tail) : start + len(stop)] if self._include else seen[:start]
            self._tail = ""
            return shown, stop
        cut = max(len(seen) - self._window, 0)
        self._tail = seen[cut:]
        return (text if self._include else seen[:cut]), None

    def flush(self) -> str:
        """What was held back, when nothing more comes."""
        held = "" if self._include else self._tail
        self._tail = ""
        return held

    def _first_match(self, seen: str) -> tuple[int, str] | None:
        """The one that completes earliest; of several, the first in the list. It must end in text that was not there before."""
        best: tuple[int, str] | None = None
        for stop in self._stops:
            start = seen.find(stop, max(len(self._tail) - len(stop) + 1, 0))
            if start >= 0 and (best is None or start + len(stop) < best[0] + len(best[1])):
                best = start, stop
        return best
