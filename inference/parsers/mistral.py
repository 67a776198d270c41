"""Both generations of Mistral's calls.

From tokenizer v11 on: `[TOOL_CALLS]name[ARGS]{...}`, also without `[ARGS]`, the marker repeated for each call.
Before: `[TOOL_CALLS][{"name": N, "arguments": {...}}, ...]`. What follows the marker tells which.
"""

from __future__ import annotations

import json
import re
import secrets
import string

from inference.parsers.json_call import JsonCall
from inference.parsers.json_value import JsonValue
from inference.parsers.source import Markers
from inference.parsers.tool_parser import Form, ToolParser, Vocabulary

CALLS, ARGS = "[TOOL_CALLS]", "[ARGS]"
NAME = re.compile(r"[^\s\[\]{}\"'<>(),:]+")
ID_CHARACTERS = string.ascii_letters + string.digits


class Mistral(ToolParser):
    opening = Markers(CALLS)

    @property
    def in_string(self) -> bool:
        if self.state == self.arguments:
            return self.value.in_string
        return self.state == self.inside and self.call.in_string

    def text(self) -> bool:
        text, marker = self.source.until(self.opening)
        self.output.text(text)
        if marker is None:
            return False
        self.output.begin()
        self.output.markup(self.source.take_word(CALLS))
        self.state = self.generation
        return True

    def generation(self) -> bool:
        self.output.markup(self.source.spaces())
        char = self.source.peek()
        if char == "[":
            self.output.markup(self.source.take_word(char))
            self.state = self.item
        elif char:
            self.names: list[str] = []
            self.state = self.name
        return bool(char)

    # v11 and later

    def name(self) -> bool:
        piece = self.source.match(NAME)
        self.output.markup(piece)
        self.names.append(piece)
        if self.source.peek():
            self.state = self.before_arguments
        return bool(self.source.peek())

    def before_arguments(self) -> bool:
        self.output.markup(self.source.spaces())
        marked = self.source.goes_on_with(ARGS)
        if not self.source.peek() or marked is None:
            return False
        name = "".join(self.names)
        if name and (marked or self.source.peek() == "{"):
            self.output.open(name)
            self.output.markup(self.source.take_word(ARGS if marked else ""))
            self.state = self.before_value
        else:
            self.output.end()
            self.state = self.text
        return True

    def before_value(self) -> bool:
        self.output.markup(self.source.spaces())
        self.value = JsonValue(self.opening)
        self.state = self.arguments if self.source.peek() else self.before_value
        return bool(self.source.peek())

    def arguments(self) -> bool:
        self.output.arguments(self.value.read(self.source))
        if self.value.ended:
            self.state = self.text
        return self.value.ended

    # before v11

    def item(self) -> bool:
        self.output.markup(self.source.spaces())
        char = self.source.peek()
        if char == "{":
            self.output.begin()
            self.call = JsonCall(self.source, self.output, self.opening)
            self.state = self.inside
        elif char == ",":
            self.output.markup(self.source.take_word(char))
        elif char:
            self.output.markup(self.source.take_word(char) if char == "]" else "")
            self.output.end()
            self.state = self.text
        return bool(char)

    def inside(self) -> bool:
        if not self.call.read():
            return False
        self.state = self.item if self.output.end() else self.text
        return True

    @staticmethod
    def forms(name: str, vocabulary: Vocabulary) -> list[Form]:
        if vocabulary.token_to_id(ARGS) is not None:
            return [Form(f"{CALLS}{name}{ARGS}", "")]
        return [Form(f'{CALLS}[{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": ', "}]")]

    @staticmethod
    def new_id(name: str, number: int) -> str:
        return "".join(secrets.choice(ID_CHARACTERS) for _ in range(9))
