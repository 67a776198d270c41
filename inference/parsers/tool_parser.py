"""What all tool parsers share: a machine whose states are methods."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from inference.parsers.emission import Run
from inference.parsers.source import Markers, Source
from inference.parsers.tool_output import ToolOutput

Tools = Sequence[Mapping[str, Any]]
State = Callable[[], bool]


class Vocabulary(Protocol):
    """All that parsers ask of a tokenizer."""

    def token_to_id(self, token: str) -> int | None: ...


class Form(NamedTuple):
    """The markup around the arguments of one call."""

    begin: str
    end: str


class ToolParser(ABC):
    """Reads one family's calls out of an answer's text.

    A state reads what it can and returns whether the machine goes on; False means that it needs more text.
    """

    opening: ClassVar[Markers]  # what ends the text outside calls
    separator: ClassVar[str] = ""  # between two calls
    schema_style: ClassVar[str] = "json"  # how the family writes arguments

    def __init__(self, output: ToolOutput, tools: Tools) -> None:
        self.output = output
        self.source = Source()
        self.state: State = self.text

    @abstractmethod
    def text(self) -> bool:
        """The state outside calls."""

    @staticmethod
    @abstractmethod
    def forms(name: str, vocabulary: Vocabulary) -> list[Form]:
        """Every form in which a model may be made to write a call of `name`."""

    @staticmethod
    def new_id(name: str, number: int) -> str:
        """`number` counts the conversation's calls from 0, those of earlier messages included."""
        return f"chatcmpl-tool-{secrets.token_hex(8)}"

    @property
    def in_string(self) -> bool:
        """Whether text goes on in a JSON string of the arguments."""
        return False

    @property
    def run(self) -> Run | None:
        if self.source.held:
            return None
        if self.state == self.text:
            return self.output.run_of_text(self.opening.first)
        return self.output.run_of_string() if self.in_string else None

    def feed(self, text: str, finished: bool) -> None:
        self._advance(text, finished)
        if finished:
            self.output.finish()
            self.state = self.text

    def drop(self, text: str) -> None:
        """`text` stood here and is shown nowhere: what was held back for a marker cannot become one any more."""
        self._advance("", True)
        self.output.drop(text)

    def _advance(self, text: str, finished: bool) -> None:
        self.source.push(text, finished)
        while self.state():
            pass
