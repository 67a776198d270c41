"""Stop strings, however the text is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.stops import StopStrings

TEXT = st.text("abc", max_size=30)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3)


def fed(stops: list[str], pieces: list[str], *, include: bool) -> tuple[str, str | None]:
    strings = StopStrings(stops, include=include)
    shown = ""
    for piece in pieces:
        text, stop = strings.feed(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + strings.flush(), None


def expected(stops: list[str], text: str, *, include: bool) -> tuple[str, str | None]:
    """Character by character: the first end of any stop string, the list's order among several."""
    for end in range(1, len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return (text[:end] if include else text[: end - len(stop)]), stop
    return text, None


@given(STOPS, TEXT, st.booleans())
def test_character_by_character(stops: list[str], text: str, include: bool) -> None:
    assert fed(stops, list(text), include=include) == expected(stops, text, include=include)


@given(STOPS, st.lists(st.text("abc", max_size=5), max_size=10), st.booleans())
def test_the_earliest_end_wins_within_a_piece_too(stops: list[str], pieces: list[str], include: bool) -> None:
    assert fed(stops, pieces, include=include) == expected(stops, "".join(pieces), include=include)


def test_what_may_still_become_a_stop_string_waits() -> None:
    strings = StopStrings(["abcd"], include=False)
    assert [strings.feed(piece)[0] for piece in ("xyz", "ab", "c")] == ["", "xy", "z"]
    assert strings.flush() == "abc"
    assert strings.flush() == ""


def test_nothing_waits_where_the_match_is_shown() -> None:
    strings = StopStrings(["abcd"], include=True)
    assert [strings.feed(piece) for piece in ("ab", "cdef")] == [("ab", None), ("cd", "abcd")]


def test_a_match_that_came_too_early_does_not_count_later() -> None:
    strings = StopStrings(["ab"], include=False)
    assert strings.feed("ab", check=False) == ("a", None)
    assert strings.feed("c") == ("b", None)
    assert strings.feed("ab") == ("c", "ab")


def test_ties_go_to_the_lists_order() -> None:
    assert fed(["lo", "llo"], ["hello"], include=False) == ("hel", "lo")
    assert fed(["llo", "lo"], ["hello"], include=False) == ("he", "llo")
