"""`<tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>`: Qwen3-Coder, Qwen3.5 and later."""

from __future__ import annotations

import json
import re
from functools import cache, partial

from inference.parsers.schema_types import STRING, as_json, escaped, parameter_types
from inference.parsers.source import Markers
from inference.parsers.tool_output import ToolOutput
from inference.parsers.tool_parser import Form, ToolParser, Tools, Vocabulary

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END = "<function=", "</function>", "<parameter=", "</parameter>"
BODY = Markers(PARAMETER, FUNCTION_END, OPEN, CLOSE)
AFTER = Markers(OPEN, CLOSE, FUNCTION)
KEY_END = Markers(">")
NAME = re.compile(r"[^>\n<]*")
# The newline before a closing marker belongs to it. A marker that should have been preceded by </parameter> closes too, but only at a
# line's start, where the family writes it: values hold other markup as it is.
VALUE_END = Markers(f"\n{PARAMETER_END}", PARAMETER_END, f"\n{PARAMETER}", f"\n{FUNCTION_END}")


class Qwen3Xml(ToolParser):
    """Values become JSON by the types of the tool's schema. Strings stream as they come; others are written once they are complete.

    A call that is cut stays cut: its arguments lack their end. Some models leave `<tool_call>` out, so `<function=` begins a call too.
    """

    opening = Markers(OPEN, FUNCTION)
    schema_style = "qwen_xml"

    def __init__(self, output: ToolOutput, tools: Tools) -> None:
        super().__init__(output, tools)
        self.types_of = cache(partial(parameter_types, tools))

    def text(self) -> bool:
        text, marker = self.source.until(self.opening)
        self.output.text(text)
        return self.begin(marker)

    def begin(self, marker: str | None) -> bool:
        if marker is None:
            return False
        self.output.begin()
        self.output.markup(self.source.take_word(OPEN if marker == OPEN else ""))
        self.state = self.function
        return True

    def function(self) -> bool:
        self.output.markup(self.source.spaces())
        found = self.source.goes_on_with(FUNCTION)
        if found is None or not self.source.peek():
            return False
        self.output.markup(self.source.take_word(FUNCTION if found else ""))
        self.names: list[str] = []
        self.state = self.name if found else self.no_call
        return True

    def no_call(self) -> bool:
        self.output.end()
        self.state = self.text
        return True

    def name(self) -> bool:
        piece = self.source.match(NAME)
        self.output.markup(piece)
        self.names.append(piece)
        char = self.source.peek()
        if not char:
            return False
        self.function_name = "".join(self.names).strip()
        if char != ">" or not self.function_name:
            return self.no_call()
        self.output.open(self.function_name)
        self.output.markup(self.source.take_word(char))
        self.parameters = 0
        self.state = self.body
        return True

    def body(self) -> bool:
        text, marker = self.source.until(BODY)
        self.output.markup(text)
        if marker == PARAMETER:
            self.output.markup(self.source.take_word(PARAMETER))
            self.keys: list[str] = []
            self.state = self.key
        elif marker is not None:
            self.output.markup(self.source.take_word(marker if marker == FUNCTION_END else ""))
            self.output.arguments("", "}" if self.parameters else "{}")
            self.state = self.after
        return marker is not None

    def key(self) -> bool:
        text, marker = self.source.until(KEY_END)
        self.output.markup(text)
        self.keys.append(text)
        if marker is None:
            return False
        self.output.markup(self.source.take_word(marker))
        self.types = self.types_of(self.function_name, "".join(self.keys))
        self.state = self.before_value
        return True

    def before_value(self) -> bool:
        char = self.source.peek()
        if not char:
            return False
        self.output.markup(self.source.take_word(char if char == "\n" else ""))
        self.pieces: list[str] = []
        if self.types == STRING:
            self.output.arguments("", self.key_json() + '"')
        self.state = self.value
        return True

    def key_json(self) -> str:
        return ("{" if self.parameters == 0 else ", ") + json.dumps("".join(self.keys), ensure_ascii=False) + ": "

    def value(self) -> bool:
        text, marker = self.source.until(VALUE_END)
        if self.types == STRING:
            self.output.arguments(text, escaped(text))
        else:
            self.output.arguments(text, "")
            self.pieces.append(text)
        if marker is None:
            return False
        self.output.markup(self.source.take_word(marker if PARAMETER_END in marker else ""))
        self.output.arguments("", '"' if self.types == STRING else self.key_json() + as_json("".join(self.pieces), self.types))
        self.parameters += 1
        self.state = self.body
        return True

    def after(self) -> bool:
        text, marker = self.source.until(AFTER)
        self.output.markup(text)
        if marker != CLOSE:
            return self.begin(marker)
        self.output.markup(self.source.take_word(CLOSE))
        self.state = self.text
        return True

    @staticmethod
    def forms(name: str, vocabulary: Vocabulary) -> list[Form]:
        return [Form(f"{OPEN}\n{FUNCTION}{name}>\n", f"\n{FUNCTION_END}\n{CLOSE}")]
