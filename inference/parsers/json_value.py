"""Where a JSON value ends, found while it arrives."""

from __future__ import annotations

import re
from functools import cache

from inference.parsers.source import Markers, Source

STRING_TURN = re.compile(r'["\\]')


@cache
def structure(stops: Markers) -> re.Pattern[str]:
    return re.compile(rf'{stops.pattern.pattern}|["\[\]{{}}]')


@cache
def scalar_end(stops: Markers) -> re.Pattern[str]:
    return re.compile(rf"{stops.pattern.pattern}|[\s,\]}}]")


class JsonValue:
    """Passes one JSON value through as it stands, by its strings and brackets alone.

    What is inside is not judged: arguments leave as they arrive, so a fault in their middle comes too late to take them back.
    A marker of `stops` outside a string ends a value that its brackets left open; inside a string it is text.
    """

    def __init__(self, stops: Markers) -> None:
        self.ended = False
        self._stops = stops
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._scalar = False

    @property
    def in_string(self) -> bool:
        """Whether text goes on in a string, up to a quote or a backslash."""
        return self._in_string and not self._escaped

    def read(self, source: Source) -> str:
        """The part of the value that is here now. Sets `ended` when it is the last."""
        start, limit = source.at, -1
        while not self.ended and source.at < len(source.text):
            if self._in_string:
                self._read_string(source)
                continue
            limit = source.decided_until(self._stops) if limit < 0 else limit
            if source.at >= limit:
                break
            if self._depth or self._scalar:
                self._read_structure(source, limit)
            else:
                self._begin(source)
        return source.text[start : source.at]

    def _begin(self, source: Source) -> None:
        first = source.peek()
        self._in_string = first == '"'
        self._depth = 1 if first in "{[" else 0
        self._scalar = not (self._in_string or self._depth)
        source.at += 0 if self._scalar else 1

    def _read_string(self, source: Source) -> None:
        if self._escaped:
            self._escaped = False
            source.at += 1
            return
        turn = STRING_TURN.search(source.text, source.at)
        source.at = turn.end() if turn else len(source.text)
        if turn and turn.group() == "\\":
            self._escaped = True
        elif turn:
            self._in_string = False
            self.ended = self._depth == 0

    def _read_structure(self, source: Source, limit: int) -> None:
        found = (scalar_end if self._scalar else structure)(self._stops).search(source.text, source.at)
        if found is None or found.start() >= limit:
            source.at = limit
            return
        mark = found.group()
        if self._scalar or len(mark) > 1:
            source.at = found.start()
            self.ended = True
            return
        source.at = found.end()
        self._in_string = mark == '"'
        self._depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark, 0)
        self.ended = self._depth == 0
