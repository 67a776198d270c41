"""The text that a parser reads, and the markers that it looks for.

Every parser here is a machine over one `Source`: it reads each character once, from left to right, so a feed costs the size of its text.
What may yet turn into a marker waits in the source until it is decided; nothing else does.
"""

from __future__ import annotations

import re

SPACES = re.compile(r"\s*")


class Markers:
    """A set of words to look for. None may occur inside another except at its very end, or what is found would depend on the chunking."""

    def __init__(self, *words: str) -> None:
        self.pattern = re.compile("|".join(re.escape(word) for word in words))
        beginnings = {word[:length] for word in words for length in range(1, len(word))}
        self.beginnings = sorted(beginnings, key=len, reverse=True)

    def undecided_from(self, text: str, at: int) -> int:
        """Where the longest end of `text` starts that could be the beginning of a marker; the length of `text` if none could."""
        for beginning in self.beginnings:
            if text.endswith(beginning, at):
                return len(text) - len(beginning)
        return len(text)


class Source:
    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.finished = False

    def push(self, text: str, finished: bool) -> None:
        self.text = self.text[self.at :] + text
        self.at = 0
        self.finished = finished

    def take(self, end: int) -> str:
        taken = self.text[self.at : end]
        self.at = end
        return taken

    def take_word(self, word: str) -> str:
        return self.take(self.at + len(word))

    def rest(self) -> str:
        return self.take(len(self.text))

    def peek(self) -> str:
        """The next character; "" when there is none yet."""
        return self.text[self.at : self.at + 1]

    def spaces(self) -> str:
        return self.match(SPACES)

    def match(self, pattern: re.Pattern[str]) -> str:
        """What `pattern` matches right here, "" if nothing. Only for patterns that match more of a longer text in the same way."""
        found = pattern.match(self.text, self.at)
        return self.take(found.end()) if found else ""

    def until(self, markers: Markers) -> tuple[str, str | None]:
        """The text before the next marker, and the marker, which stays unread. Without one: all text that cannot begin one, and None."""
        found = markers.pattern.search(self.text, self.at)
        if found:
            return self.take(found.start()), found.group()
        if self.finished:
            return self.rest(), None
        return self.take(markers.undecided_from(self.text, self.at)), None

    def goes_on_with(self, word: str) -> bool | None:
        """Whether `word` comes next; None while there is too little text to say."""
        here = self.text[self.at : self.at + len(word)]
        if here == word:
            return True
        return None if word.startswith(here) and not self.finished else False
