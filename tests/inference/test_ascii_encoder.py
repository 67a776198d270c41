"""The shortcut gives the library's own ids, for every text and every family that it takes."""

from __future__ import annotations

from string import printable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from inference.ascii_encoder import LONGEST_TEXT, AsciiEncoder, in_ascii, library_ids, word_cuts
from inference.tokenizer_file import tokenizer_content
from tests.inference.families import Missing, tokenizer_folder
from tests.inference.samples import model

LLAMA3_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PARTS = st.one_of(
    st.sampled_from(["'s", "'LL", " Word", "  ", "\n", "\r\n", "12", "3", "...", " --", "<|im_end|>", "<|im", "é", "你好", "😀", "\x1c"]),
    st.text(printable, max_size=8),
    st.characters(codec="utf-8").map(str),
)
TEXTS = st.lists(PARTS, max_size=30).map("".join)


def byte_level(step: pre_tokenizers.PreTokenizer, **bpe: object) -> Tokenizer:
    """A small byte-level BPE: all bytes, and a few merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "Ġ"), ("1", "2"), ("'", "s")]
    vocab = {piece: i for i, piece in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, **bpe))
    made.pre_tokenizer = step
    return made


def split(pattern: str, **how: object) -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(pattern), **{"behavior": "isolated", "invert": False, **how})
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def family(name: str) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(tokenizer_content(tokenizer_folder(name)))
    except Missing as exc:
        pytest.skip(str(exc))


TAKEN = {
    "smollm2": lambda: model("smollm2").tokenizer._backend,
    "qwen3": lambda: family("qwen3"),
    "tekken": lambda: family("tekken"),
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "llama3": lambda: byte_level(split(LLAMA3_WORDS), ignore_merges=True),
    "cut out": lambda: byte_level(split(LLAMA3_WORDS, behavior="removed", invert=True)),
}


@pytest.fixture(scope="module", params=TAKEN)
def taken(request: pytest.FixtureRequest) -> tuple[AsciiEncoder, Tokenizer]:
    backend = TAKEN[request.param]()
    encoder = AsciiEncoder.build(backend)
    assert encoder is not None
    return encoder, backend


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, special=st.booleans())
def test_the_ids_are_the_library_s(taken: tuple[AsciiEncoder, Tokenizer], text: str, special: bool) -> None:
    encoder, backend = taken
    assert encoder.encode(text, add_special_tokens=special) == library_ids(backend, text, special)


def test_a_long_text_is_the_library_s_own(taken: tuple[AsciiEncoder, Tokenizer]) -> None:
    encoder, backend = taken
    text = "the thin  inn's 12 " * (LONGEST_TEXT // 15)
    assert encoder.encode(text, add_special_tokens=False) == library_ids(backend, text, False)


def lower_cased() -> Tokenizer:
    made = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.normalizer = normalizers.Lowercase()
    return made


def with_greedy_marker() -> Tokenizer:
    made = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return made


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)), id="a space of its own before the text"),
        pytest.param(lambda: byte_level(pre_tokenizers.Whitespace()), id="not byte level"),
        pytest.param(lambda: byte_level(split(r"\w+$|\W+")), id="an end of line, which re sees elsewhere"),
        pytest.param(lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), dropout=0.5), id="chance"),
        pytest.param(lower_cased, id="another text"),
        pytest.param(with_greedy_marker, id="a marker that takes the space before it"),
        pytest.param(lambda: byte_level(split(r"\p{L}+")), id="a pattern that leaves something out"),
    ],
)
def test_what_it_cannot_do_it_does_not_take(backend: object) -> None:
    assert AsciiEncoder.build(backend()) is None  # type: ignore[operator]


def test_other_tokenizers_keep_the_library() -> None:
    assert word_cuts({"model": {"type": "Unigram"}, "normalizer": None, "added_tokens": [], "pre_tokenizer": None}) is None
    assert in_ascii(r"[^\s\p{L}\p{M}]+\S").pattern == r"[^\t\n\x0b\x0c\r A-Za-z]+[^\t\n\x0b\x0c\r ]"
