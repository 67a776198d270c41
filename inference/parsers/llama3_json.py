"""`{"name": N, "parameters": {...}}; {...}`, with or without `<|python_tag|>` before it: Llama 3.1 and later."""

from __future__ import annotations

import json

from inference.parsers.json_call import JsonCall
from inference.parsers.source import Markers
from inference.parsers.tool_parser import Form, ToolParser, Vocabulary

TAG = "<|python_tag|>"
TAGS = Markers(TAG)
OPENING = Markers(TAG, "{")


class Llama3Json(ToolParser):
    """An object anywhere in the text is a call if it has a name and arguments or parameters. Any other is text, even after the tag."""

    separator = "; "

    def text(self) -> bool:
        text, marker = self.source.until(OPENING)
        self.output.text(text)
        if marker is None:
            return False
        self.output.begin()
        if marker == TAG:
            self.output.markup(self.source.take_word(TAG))
            self.state = self.tagged
        else:
            self.begin()
        return True

    def tagged(self) -> bool:
        self.output.markup(self.source.spaces())
        char = self.source.peek()
        if char == "{":
            self.begin()
        elif char:
            self.output.end()
            self.state = self.text
        return bool(char)

    def begin(self) -> None:
        self.call = JsonCall(self.source, self.output, TAGS, needs_arguments=True)
        self.state = self.inside

    def inside(self) -> bool:
        if not self.call.read():
            return False
        self.output.end()
        self.state = self.text
        return True

    @staticmethod
    def forms(name: str, vocabulary: Vocabulary) -> list[Form]:
        return [Form(f'{{"name": {json.dumps(name, ensure_ascii=False)}, "parameters": ', "}")]
