"""Deltas of tool calls in coupled streams carry no nulls."""

from __future__ import annotations

from inference.derender.chat_answer import sparse
from inference.protocol.chat import FunctionCall, ToolCallDelta
from inference.protocol.codec import encode


def test_a_later_delta_is_its_arguments_alone():
    later = ToolCallDelta(index=0, function=FunctionCall(arguments='{"a"'))
    assert encode(sparse(later)) == b'{"index":0,"function":{"arguments":"{\\"a\\""}}'


def test_the_first_delta_names_the_call():
    first = ToolCallDelta(index=0, id="call-1", type="function", function=FunctionCall(name="f"))
    assert encode(sparse(first)) == b'{"index":0,"id":"call-1","type":"function","function":{"name":"f"}}'
