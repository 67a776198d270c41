"""Texts and names against the contract's rules as they are written there, and against the tokenizers library on its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from inference.detokenize import Detokenizer
from inference.tokenizer_file import tokenizer_content
from tests.inference.random_ids import WORDS, broken, encoded, ids_of, lps_of, quick
from tests.inference.samples import HI, folder, model, whole_chat

BYTE_LEVEL = ("R", "smollm2", "qwen3", "tekken")
REPLACEMENT = "\ufffd"
good_text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map("".join)


@cache
def library(name: str) -> Library:
    return Library.from_str(tokenizer_content(folder(name)).decode())


def decoded(name: str, ids: Sequence[int], *, skip: bool = False) -> str:
    text: str = library(name).decode(ids, skip_special_tokens=skip)
    return text


def text_of(name: str, ids: Sequence[int], *, skip: bool, prompt: list[int] | None = None) -> str:
    made = Detokenizer(model(name).tokenizer, skip_special_tokens=skip)
    made.seed(prompt)
    return made.feed(ids)


def text_by_the_letter(name: str, ids: Sequence[int], *, skip: bool, prompt: list[int] | None = None) -> str:
    """The rule of pipeline.md 7: of the prompt's last 7 pieces the last 5 are the context."""
    pieces = pieces_of(name, [] if prompt is None else prompt[-7:], skip=skip)[-5:]
    emitted, text = len(pieces), ""
    for piece in pieces_of(name, ids, skip=skip):
        pieces.append(piece)
        old, new = (library(name).decoder.decode(part) for part in (pieces[:emitted], pieces))
        if len(new) > len(old) and not new.endswith(REPLACEMENT):
            text += new[len(old) :]
            pieces = pieces[emitted:]
            emitted = len(pieces)
    return text


def pieces_of(name: str, ids: Sequence[int], *, skip: bool) -> list[str]:
    hidden = model(name).tokenizer.special_ids if skip else frozenset()
    found = [library(name).id_to_token(i) for i in ids if i not in hidden]
    return ["" if piece is None else piece for piece in found]


def name_by_the_letter(name: str, ids: Sequence[int], token_id: int) -> str:
    """The rule of pipeline.md 8.3 for a token after these ids."""
    alone = name_alone(name, token_id)
    if not alone.endswith(REPLACEMENT):
        return alone
    for count in range(1, min(len(ids), 4) + 1):
        context = list(ids[-count:])
        whole = decoded(name, [*context, token_id])
        if whole.endswith(REPLACEMENT):
            continue
        while context and name_alone(name, context[-1]).endswith(REPLACEMENT):
            context.pop()
        return whole.removeprefix(decoded(name, context))
    return ""


def name_alone(name: str, token_id: int) -> str:
    """A SentencePiece word begins with its space, which the library drops at the start of a text."""
    piece = library(name).id_to_token(token_id)
    return " " * (piece is not None and piece.startswith("▁")) + decoded(name, [token_id])


@quick
@given(data=st.data(), skip=st.booleans())
def test_texts(name: str, data: st.DataObject, skip: bool) -> None:
    ids, prompt = data.draw(ids_of(name)), data.draw(st.one_of(st.none(), ids_of(name)))
    assert text_of(name, ids, skip=skip, prompt=prompt) == text_by_the_letter(name, ids, skip=skip, prompt=prompt)


@quick
@given(data=st.data())
def test_the_shortcut_for_garbage_changes_nothing(name: str, data: st.DataObject) -> None:
    stray = st.one_of(st.sampled_from(broken(name)), st.just(model(name).vocab_size + 9))
    runs = st.tuples(stray, st.integers(1, 30)).map(lambda run: [run[0]] * run[1])
    parts = data.draw(st.lists(st.one_of(stray.map(lambda i: [i]), runs), max_size=12))
    ids = [i for part in parts for i in part]
    assert text_of(name, ids, skip=True) == text_by_the_letter(name, ids, skip=True)


@quick
@given(data=st.data(), skip=st.booleans())
def test_any_text_is_the_librarys(name: str, data: st.DataObject, skip: bool) -> None:
    """With one more letter, so that nothing waits. Garbage too, except with byte fallback: one stray byte spoils a run of good ones."""
    words = st.lists(st.sampled_from(encoded(name))).map(lambda parts: [i for part in parts for i in part])
    ids = data.draw(ids_of(name) if name in BYTE_LEVEL else words)
    ids = [*ids, *library(name).encode("a", add_special_tokens=False).ids]
    assert text_of(name, ids, skip=skip) == decoded(name, ids, skip=skip)


@quick
@given(data=st.data())
def test_names(name: str, data: st.DataObject) -> None:
    """Of the sampled tokens and of their candidates, with their bytes."""
    ids = data.draw(ids_of(name))
    lps = lps_of(ids, model(name).vocab_size)
    entries = whole_chat(model(name), ids, lps, {"logprobs": True, "top_logprobs": 2})["choices"][0]["logprobs"]["content"]
    for at, (entry, given_entry) in enumerate(zip(entries, lps["content"], strict=True)):
        named = [entry, *entry["top_logprobs"]]
        for shown, token_id in zip(named, [ids[at], *(top["token_id"] for top in given_entry["top_logprobs"])], strict=True):
            assert shown["token"] == name_by_the_letter(name, ids[:at], token_id)
            assert shown["bytes"] == (list(shown["token"].encode()) if token_id < model(name).vocab_size else None)


@quick
@given(words=good_text)
def test_the_names_of_a_text_make_the_text(name: str, words: str) -> None:
    """Behind a prompt, where a first word keeps its space."""
    ids = library(name).encode(words, add_special_tokens=False).ids
    prompt = library(name).encode("Hi", add_special_tokens=False).ids
    choice = whole_chat(model(name), ids, lps_of(ids, 1), {"logprobs": True, "messages": HI}, prompt_token_ids=prompt)["choices"][0]
    content, entries = choice["message"]["content"], choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == content
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == content.encode()
    assert content.removeprefix(" " * (name not in BYTE_LEVEL)) == library(name).decode(ids)


@quick
@given(text=st.one_of(good_text, st.text(max_size=30), st.text(st.characters(max_codepoint=127), max_size=60)), special=st.booleans())
def test_ids_are_the_librarys(name: str, text: str, special: bool) -> None:
    assert model(name).tokenizer.encode(text, add_special_tokens=special) == library(name).encode(text, add_special_tokens=special).ids
