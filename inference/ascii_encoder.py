"""A shorter way from plain text to token ids, with the same ids.

The `tokenizers` library spends most of its time on cutting a text into words. Where a text is ASCII, as most code and English is, and the
tokenizer is a byte-level BPE, Python's `re` cuts the same words in a fifth of the time, and most words are one token of the vocabulary.

What is looked up is made of the vocabulary alone, never of texts: how long one tenant's text takes tells nothing of another's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from random import Random
from string import printable, punctuation
from typing import Any

from tokenizers import Tokenizer as Backend

LONGEST_TEXT = 64 * 1024  # no other thread runs while `re` cuts
GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ONE_DIGIT, MANY_DIGITS = r"[0-9]|[^0-9]+", r"[0-9]+|[^0-9]+"
SPACE = r"\t\n\x0b\x0c\r "
IN_ASCII = {  # classes of characters, less what is not ASCII; `re` and the library differ on \s
    r"\s": SPACE, r"\p{Lu}": "A-Z", r"\p{Ll}": "a-z", r"\p{L}": "A-Za-z", r"\p{N}": "0-9", r"\p{Nd}": "0-9",
    r"\p{Lt}": "", r"\p{Lm}": "", r"\p{Lo}": "", r"\p{M}": "",
}
NOTHING = "(?!)"
UNPRINTED = [*range(33), 127]  # bytes that have a letter of their own in a byte-level vocabulary: the n-th of these is U+0100 + n
LETTERS = {byte: chr(256 + n) for n, byte in enumerate(UNPRINTED)}
BYTES = {256 + n: chr(byte) for n, byte in enumerate(UNPRINTED)}


class AsciiEncoder:
    """Use `build`; an encoder that exists gives the library's ids for every text. Safe to share between threads."""

    def __init__(self, backend: Backend, cuts: Sequence[re.Pattern[str]]) -> None:
        self._backend = backend
        self._model = backend.model
        self._cuts = cuts
        added = {token.content: (i,) for i, token in backend.get_added_tokens_decoder().items()}
        longest_first = map(re.escape, sorted(added, key=len, reverse=True))
        self._markers = re.compile(f"({'|'.join(longest_first)})") if added else None
        self._known = single_tokens(backend) | added
        self._head, self._tail = frame(backend)

    @classmethod
    def build(cls, backend: Backend) -> AsciiEncoder | None:
        """None where the tokenizer is not one whose words `re` can cut, or where a trial says otherwise."""
        cuts = word_cuts(json.loads(backend.to_str()))
        if cuts is None:
            return None
        made = cls(backend, cuts)
        same = all(made.encode(text, add_special_tokens=True) == library_ids(backend, text, True) for text in trials(backend))
        return made if same else None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Raises UnicodeError: the text holds half of a surrogate pair."""
        if len(text) > LONGEST_TEXT:
            return library_ids(self._backend, text, add_special_tokens)
        sections = [text] if self._markers is None else self._markers.split(text)  # markers (`<|im_end|>`), and what is between them
        ids = chain.from_iterable(map(self._section, sections))
        return [*self._head, *ids, *self._tail] if add_special_tokens else list(ids)

    def _section(self, section: str) -> Iterable[int]:
        """No word reaches across a marker."""
        known = self._known
        if section in known:
            return known[section]
        if not section.isascii():
            return library_ids(self._backend, section, False)
        words = [section]
        for cut in self._cuts:
            words = [word for part in words for word in cut.findall(part)]
        return chain.from_iterable([known.get(word) or self._tokens(word) for word in words])

    def _tokens(self, word: str) -> Sequence[int]:
        return [token.id for token in self._model.tokenize(word.translate(LETTERS))]


def library_ids(backend: Backend, text: str, add_special_tokens: bool) -> list[int]:
    ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids  # fast: no offsets
    return ids


def word_cuts(tokenizer: Mapping[str, Any]) -> list[re.Pattern[str]] | None:
    """Of a tokenizer.json: the patterns that cut a section into words, one after the other. None if there is more to it than that."""
    model, normalizer = tokenizer["model"], tokenizer["normalizer"]
    special = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    reaching = ("single_word", "lstrip", "rstrip", "normalized")
    if model["type"] != "BPE" or any(model.get(name) for name in special):
        return None
    if any(token[name] for token in tokenizer["added_tokens"] for name in reaching):
        return None
    if normalizer is not None and normalizer["type"] not in ("NFC", "NFKC"):  # these leave ASCII alone
        return None
    first = tokenizer["pre_tokenizer"]
    steps = first["pretokenizers"] if first and first["type"] == "Sequence" else [first] if first else []
    patterns = [pattern_of(step) for step in steps]
    if None in patterns or not any(step["type"] == "ByteLevel" for step in steps):
        return None
    try:
        return [in_ascii(pattern) for pattern in patterns if pattern] or None  # without a cut a section would be one long word
    except re.error:
        return None


def pattern_of(step: Mapping[str, Any]) -> str | None:
    """What one step of a pre-tokenizer cuts out; "" if it cuts nothing, None if it is no cutting by a pattern."""
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False}:
            return GPT2_WORDS if step.get("use_regex", True) else ""
        case {"type": "Digits"}:
            return ONE_DIGIT if step["individual_digits"] else MANY_DIGITS
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
            return str(pattern)
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}:
            return str(pattern)
    return None


def in_ascii(pattern: str) -> re.Pattern[str]:
    """The pattern as `re` writes it, for ASCII text.

    Raises:
        re.error: it uses what `re` does not know, or what means something else there.
    """
    written, inside = [], False
    for part in re.findall(r"\\[pP]\{\w+\}|\\.|\[\^?|\]|[^\\\[\]]+", pattern):
        if part[0] in "[]":
            inside = part != "]"
        elif part in IN_ASCII:
            members = IN_ASCII[part]
            part = members if inside else f"[{members}]" if members else NOTHING
        elif part[:2] in (r"\p", r"\P") or (part == r"\S" and inside) or (not inside and re.search(r"[\^$]|\}\+", part)):
            raise re.error(f"{part} is not for re")
        elif part == r"\S":
            part = f"[^{SPACE}]"
        written.append(part)
    return re.compile("".join(written), re.ASCII)


def single_tokens(backend: Backend) -> dict[str, tuple[int]]:
    """The words that are one token. Not every piece of the vocabulary is: merges may lead past it."""
    known: dict[str, tuple[int]] = {}
    model = backend.model
    for piece, token_id in backend.get_vocab(with_added_tokens=False).items():
        word = piece.translate(BYTES)
        if word.isascii() and [token.id for token in model.tokenize(piece)] == [token_id]:
            known[word] = (token_id,)
    return known


def frame(backend: Backend) -> tuple[list[int], list[int]]:
    """The special tokens that go before and after a text."""
    bare, framed = library_ids(backend, "a", False), library_ids(backend, "a", True)
    start = next(i for i in range(len(framed)) if framed[i : i + len(bare)] == bare)
    return framed[:start], framed[start + len(bare) :]


def trials(backend: Backend) -> Iterator[str]:
    """Texts that have ended other shortcuts: runs of spaces before everything, contractions, digits, markers amid words."""
    random = Random(0)
    markers = [token.content for token in backend.get_added_tokens_decoder().values()]
    parts = [*printable, *punctuation, " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t ", "it's", "WE'LL", " I'd", "x", "word", " Word", " THE",
             "camelCase", "12", "2024", "3.14", "(a)", "://", "...", " --", "_", "\x00", "\x1c", "\x7f", "caf\u00e9", *markers[:20]]
    yield from ("", " ", "a", "Hello, world! It's 9:30.")
    for _ in range(200):
        yield "".join(random.choices(parts, k=random.randint(1, 30)))
