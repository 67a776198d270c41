from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tokenry.sse import EventReader

STREAM = b'data: {"a": 1}\n\n: a comment\n\ndata: {"b": "\xc3\xa9"}\r\n\r\ndata: [DONE]\n\n'
EVENTS = [b'{"a": 1}', b'{"b": "\xc3\xa9"}', b"[DONE]"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_do_not_depend_on_where_the_bytes_are_cut(cuts):
    reader, found, edges = EventReader(), [], sorted({0, *cuts, len(STREAM)})
    for start, end in pairwise(edges):
        found += reader.feed(STREAM[start:end])
    assert found == EVENTS


def test_an_unfinished_event_waits():
    reader = EventReader()
    assert list(reader.feed(b'data: {"a"')) == []
    assert list(reader.feed(b": 1}\n\n")) == [b'{"a": 1}']
