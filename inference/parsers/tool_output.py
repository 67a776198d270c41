"""Where a tool parser puts what it reads, and the one place that decides what becomes of it.

The rule that makes any chunking give the same message: nothing of a call goes out before its head is read, so until then it can still turn
out to be text, and once it is out it stays.

* `text` before the first call is content; blank text waits, because blank text before a call is dropped.
* `begin` starts what may be a call; from here on everything is held.
* `open` says that it is one: the held markup is dropped, the held arguments follow the name.
* `end` closes it; what was never opened was no call, and comes out as content as it stands.
* text between and after calls is dropped, until something that was no call makes content of what follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from inference.parsers.emission import Emission, Run
from inference.parsers.json_value import STRING_TURN

NewId = Callable[[str, int], str]


class Held(NamedTuple):
    text: str
    arguments: str | None = None  # None: no part of the arguments
    shown: bool = True  # if it turns out to be no call


class ToolOutput:
    """`pinned` are the ids of calls that an earlier part of the same stream has sent already; `limit` is how many calls may come out."""

    def __init__(self, out: Emission, new_id: NewId, *, pinned: Sequence[str] = (), limit: int | None = None) -> None:
        self.ids: list[str] = []
        self.deciding = False
        self._out = out
        self._new_id = new_id
        self._pinned = pinned
        self._limit = limit
        self._held: list[Held] = []
        self._begun = 0
        self._said_nothing = True
        self._dropping = False
        self._muted = False

    def text(self, text: str) -> None:
        if not text:
            return
        if self._dropping:
            self._out.markup(text)
        elif self._said_nothing and text.isspace():
            self._held.append(Held(text))
        else:
            self._release()
            self._out.content(text)

    def run_of_text(self, ends: re.Pattern[str]) -> Run | None:
        """Text is content right away only where nothing is held and something was said."""
        return None if self._dropping or self._said_nothing or self._held else Run("content", ends)

    def run_of_string(self) -> Run | None:
        """Inside a string of the arguments of a call that is shown."""
        return None if self.deciding or self._muted else Run("tool_call", STRING_TURN, len(self.ids) - 1)

    def drop(self, text: str) -> None:
        """`text` is shown nowhere, whatever becomes of what is around it."""
        if self._held:
            self._held.append(Held(text, shown=False))
        else:
            self._out.markup(text)

    def begin(self) -> None:
        if not self.deciding:
            self.deciding = True
            self._begun = len(self._held)

    def markup(self, text: str) -> None:
        if self.deciding:
            self._held.append(Held(text))
        else:
            self._out.markup(text)

    def arguments(self, text: str, arguments: str | None = None) -> None:
        """`text` as the model wrote it; `arguments` is the JSON that it stands for, if that differs."""
        arguments = text if arguments is None else arguments
        if self.deciding:
            self._held.append(Held(text, arguments))
        else:
            self._write(text, arguments)

    def open(self, name: str) -> None:
        self.deciding = False
        self._dropping = True
        self._muted = self._limit is not None and len(self.ids) >= self._limit
        if not self._muted:
            index = len(self.ids)
            self.ids.append(self._pinned[index] if index < len(self._pinned) else self._new_id(name, index))
            self._out.open_call(index, self.ids[index], name)
        held, self._held = self._held, []
        for piece in held:
            if piece.arguments is None:
                self._out.markup(piece.text)
            else:
                self._write(piece.text, piece.arguments)

    def end(self) -> bool:
        """Whether it was a call."""
        if not self.deciding:
            return True
        self.deciding = False
        self._dropping = False
        self._release()
        return False

    def cancel(self) -> None:
        """What began is text as any other: it did not even look like a call."""
        self.deciding = False
        begun = self._held[self._begun :]
        del self._held[self._begun :]
        for piece in begun:
            (self.text if piece.shown else self.drop)(piece.text)

    def finish(self) -> None:
        self.end()
        self._release()

    def _write(self, text: str, arguments: str) -> None:
        if self._muted:
            self._out.markup(text)
        else:
            self._out.arguments(len(self.ids) - 1, text, arguments)

    def _release(self) -> None:
        """What is held is content after all."""
        self._said_nothing = False
        held, self._held = self._held, []
        for piece in held:
            (self._out.content if piece.shown else self._out.markup)(piece.text)
