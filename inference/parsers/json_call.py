"""A call written as a JSON object, read while it arrives."""

from __future__ import annotations

import json
from collections.abc import Callable

from inference.parsers.json_value import JsonValue
from inference.parsers.source import Markers, Source
from inference.parsers.tool_output import ToolOutput

ARGUMENT_KEYS = ("arguments", "parameters")
NO_VALUE = ("", ",", ":", "}", "]")


class JsonCall:
    """`{"name": N, "arguments": {...}}`, keys in any order, unknown ones skipped; the first of each name counts.

    The call opens as soon as its name is read or, where an object with a name may be plain JSON (`needs_arguments`), once the arguments
    begin too. A fault before that leaves it unopened; a fault after it ends the call where it is. A call without arguments gets `{}`.
    `braced` says that the opening brace has been read.
    """

    _value: JsonValue
    _string: list[str]

    def __init__(self, source: Source, output: ToolOutput, stops: Markers, *, needs_arguments: bool = False, braced: bool = False) -> None:
        self.ended = False
        self._source = source
        self._output = output
        self._stops = stops
        self._needs_arguments = needs_arguments
        self._state: Callable[[], bool] = self._before_key if braced else self._brace
        self._key: str | None = None
        self._name: str | None = None
        self._has_arguments = False

    @property
    def in_string(self) -> bool:
        """Whether text goes on in a string of the arguments."""
        return self._state == self._read_arguments and self._value.in_string

    def read(self) -> bool:
        """Whether the object has ended, well or not. A fault is left unread."""
        while not self.ended and self._state():
            pass
        return self.ended

    def _brace(self) -> bool:
        return self._punctuation({"{": self._before_key})

    def _before_key(self) -> bool:
        char = self._next()
        if char == '"':
            self._begin_value(self._read_key)
        elif char == "}":
            self._output.markup(self._source.take_word(char))
            self._close()
        elif char:
            self.ended = True
        return bool(char)

    def _read_key(self) -> bool:
        self._key = self._read_string()
        if self._value.ended:
            self._state = self._colon
        return self._value.ended

    def _colon(self) -> bool:
        return self._punctuation({":": self._before_value})

    def _before_value(self) -> bool:
        char = self._next()
        is_name = self._key == "name" and self._name is None
        if char in NO_VALUE or (is_name and char != '"'):
            self.ended = char != ""
            return False
        if is_name:
            self._begin_value(self._read_name)
        elif self._key in ARGUMENT_KEYS and not self._has_arguments:
            self._has_arguments = True
            self._open_if_known()
            self._begin_value(self._read_arguments)
        else:
            self._begin_value(self._skip)
        return True

    def _read_name(self) -> bool:
        self._name = self._read_string()
        if self._value.ended:
            self.ended = not self._name
            self._open_if_known()
        return self._end_value()

    def _read_arguments(self) -> bool:
        self._output.arguments(self._value.read(self._source))
        return self._end_value()

    def _skip(self) -> bool:
        self._output.markup(self._value.read(self._source))
        return self._end_value()

    def _end_value(self) -> bool:
        if self._value.ended:
            self._state = self._after_value
        return self._value.ended

    def _after_value(self) -> bool:
        return self._punctuation({",": self._before_key, "}": self._close})

    def _close(self) -> bool:
        self.ended = True
        if not self._output.deciding and not self._has_arguments:
            self._output.arguments("", "{}")
        return True

    def _open_if_known(self) -> None:
        if self._output.deciding and self._name and (self._has_arguments or not self._needs_arguments):
            self._output.open(self._name)

    def _begin_value(self, state: Callable[[], bool]) -> None:
        self._value = JsonValue(self._stops)
        self._string = []
        self._state = state

    def _read_string(self) -> str | None:
        """The string, once it has ended; None until then, and for what is no JSON string."""
        piece = self._value.read(self._source)
        self._output.markup(piece)
        self._string.append(piece)
        if not self._value.ended:
            return None
        try:
            text = str(json.loads("".join(self._string), strict=False))
            text.encode()  # a lone surrogate, spelled as an escape, could not be sent
            return text
        except ValueError:
            return None

    def _punctuation(self, states: dict[str, Callable[[], bool]]) -> bool:
        """Read one of these characters and go to its state; any other ends the object."""
        char = self._next()
        if char in states:
            self._output.markup(self._source.take_word(char))
            self._state = states[char]
        elif char:
            self.ended = True
        return bool(char)

    def _next(self) -> str:
        self._output.markup(self._source.spaces())
        return self._source.peek()
