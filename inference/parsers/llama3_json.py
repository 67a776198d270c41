"""`{"name": N, "parameters": {...}}; {...}`, with or without `<|python_tag|>` before it: Llama 3.1 and later."""

from __future__ import annotations

import json

from inference.parsers.json_call import JsonCall
from inference.parsers.source import Markers
from inference.parsers.tool_parser import Form, ToolParser, Vocabulary

TAG = "<|python_tag|>"
TAGS = Markers(TAG)


class Llama3Json(ToolParser):
    """An object anywhere in the text is a call if it has a name and arguments or parameters. Any other is text, even after the tag."""

    opening = Markers(TAG, "{")
    separator = "; "

    def text(self) -> bool:
        text, marker = self.source.until(self.opening)
        self.output.text(text)
        if marker is None:
            return False
        self.output.begin()
        self.output.markup(self.source.take_word(marker))
        self.state = self.tagged if marker == TAG else self.opened
        return True

    @property
    def in_string(self) -> bool:
        return self.state == self.inside and self.call.in_string

    def tagged(self) -> bool:
        self.output.markup(self.source.spaces())
        char = self.source.peek()
        if char == "{":
            self.output.markup(self.source.take_word(char))
            self.state = self.opened
        elif char:
            self.no_call()
        return bool(char)

    def no_call(self) -> None:
        self.output.cancel()
        self.state = self.text

    def opened(self) -> bool:
        """A brace before anything but a key is a brace in a text or a program."""
        self.output.markup(self.source.spaces())
        char = self.source.peek()
        if char == '"':
            self.call = JsonCall(self.source, self.output, TAGS, needs_arguments=True, braced=True)
            self.state = self.inside
        elif char:
            self.no_call()
        return bool(char)

    def inside(self) -> bool:
        if not self.call.read():
            return False
        self.output.end()
        self.state = self.text
        return True

    @staticmethod
    def forms(name: str, vocabulary: Vocabulary) -> list[Form]:
        return [Form(f'{{"name": {json.dumps(name, ensure_ascii=False)}, "parameters": ', "}")]
