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
        self.first = re.compile("|".join(sorted({re.escape(word[0]) for word in words})))
        self._beginnings = frozenset(word[:length] for word in words for length in range(1, len(word)))
        self._longest = max(map(len, words)) - 1

    def undecided_from(self, text: str, at: int) -> int:
        """Where the longest end of `text` starts that could be the beginning of a marker; the length of `text` if none could."""
        found = self.first.search(text, max(at, len(text) - self._longest))
        while found and text[found.start() :] not in self._beginnings:
            found = self.first.search(text, found.end())
        return found.start() if found else len(text)


class Source:
    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.finished = False

    def push(self, text: str, finished: bool) -> None:
        self.text = text if self.at == len(self.text) else self.text[self.at :] + text
        self.at = 0
        self.finished = finished

    @property
    def held(self) -> bool:
        """Whether text waits to be decided."""
        return self.at < len(self.text)

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
        if markers.first.search(self.text, self.at) is None:  # most deltas: not even a first character
            return self.rest(), None
        found = markers.pattern.search(self.text, self.at)
        if found:
            return self.take(found.start()), found.group()
        return self.take(self.decided_until(markers)), None

    def decided_until(self, markers: Markers) -> int:
        """Up to where no marker can begin that is not there yet."""
        return len(self.text) if self.finished else markers.undecided_from(self.text, self.at)

    def goes_on_with(self, word: str) -> bool | None:
        """Whether `word` comes next; None while there is too little text to say."""
        here = self.text[self.at : self.at + len(word)]
        if here == word:
            return True
        return None if word.startswith(here) and not self.finished else False
