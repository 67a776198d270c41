"""`<tool_call>{"name": N, "arguments": {...}}</tool_call>`: Hermes, Qwen2.5, Qwen3 instruct."""

from __future__ import annotations

import json

from inference.parsers.json_call import JsonCall
from inference.parsers.source import Markers
from inference.parsers.tool_parser import Form, ToolParser, Vocabulary

OPEN, CLOSE = "<tool_call>", "</tool_call>"
EITHER = Markers(OPEN, CLOSE)


class Hermes(ToolParser):
    """Content is the text before the first call. The last call may be unclosed; a marker inside a JSON string is text."""

    opening = Markers(OPEN)

    def text(self) -> bool:
        text, marker = self.source.until(self.opening)
        self.output.text(text)
        return marker is not None and self.begin()

    @property
    def in_string(self) -> bool:
        return self.state == self.inside and self.call.in_string

    def begin(self) -> bool:
        self.output.begin()
        self.output.markup(self.source.take_word(OPEN))
        self.call = JsonCall(self.source, self.output, EITHER)
        self.state = self.inside
        return True

    def inside(self) -> bool:
        if not self.call.read():
            return False
        self.state = self.after if self.output.end() else self.text
        return True

    def after(self) -> bool:
        text, marker = self.source.until(EITHER)
        self.output.markup(text)
        if marker == OPEN:
            return self.begin()
        if marker == CLOSE:
            self.output.markup(self.source.take_word(CLOSE))
            self.state = self.text
        return marker is not None

    @staticmethod
    def forms(name: str, vocabulary: Vocabulary) -> list[Form]:
        head = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        return [Form(f"{OPEN}\n{head}", f"}}\n{CLOSE}"), Form(f"{OPEN}{head}", f"}}{CLOSE}")]
