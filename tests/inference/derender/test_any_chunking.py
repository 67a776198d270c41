"""However a node cuts its tokens, and whichever way they come out: the same text, the same names, the same offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.detokenize import Detokenizer
from inference.protocol.derender import StreamState
from tests.inference.samples import (
    HI,
    chunked,
    coupled,
    coupled_text,
    derendered,
    model,
    response,
    whole,
    whole_chat,
)

WORDS = ["Hello", " there", "é", "日本語", "😀", "👩‍👩‍👧", "e\u0301", " ", "\n", "the end.", "नमस्ते", "\ufffd", "\x00"]
TOKENIZERS = ("R", "R2", "smollm2")
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ids_of(name: str) -> st.SearchStrategy[list[int]]:
    """Real text, then anything: stray bytes, special tokens, ids outside the vocabulary."""
    tokenizer = model(name).tokenizer
    encoded = [tuple(tokenizer.encode(word, add_special_tokens=False)) for word in WORDS]
    word = st.sampled_from([ids for ids in encoded if ids])
    stray = st.integers(0, tokenizer.vocab_size + 2).map(lambda i: (i,))
    special = st.sampled_from(sorted(tokenizer.special_ids)).map(lambda i: (i,))
    parts = st.lists(st.one_of(word, word, word, stray, special), min_size=1, max_size=12)
    return parts.map(lambda found: [i for part in found for i in part])


@st.composite
def cut_ids(draw: st.DrawFn, name: str) -> tuple[list[int], list[list[int]]]:
    """(ids, the same in pieces, some of them empty)."""
    ids = draw(ids_of(name))
    cuts = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    bounds = [0, *cuts, len(ids)]
    return ids, [ids[a:b] for a, b in pairwise(bounds)]


def lps_of(ids: Sequence[int], vocabulary: int) -> dict[str, Any]:
    """Two candidates each, the second from anywhere."""
    rows = [[(i, -0.5, 1), ((i * 31 + 7) % vocabulary, -1.5, 2)] for i in ids]
    tops = [[{"token_id": i, "logprob": value, "rank": rank} for i, value, rank in row] for row in rows]
    return {"content": [{"token_id": i, "logprob": -0.5, "rank": 1, "top_logprobs": row} for i, row in zip(ids, tops, strict=True)]}


def parts_of(pieces: Sequence[Sequence[int]], lps: dict[str, Any]) -> list[dict[str, Any]]:
    """A node's choices for these pieces; the end comes by itself, so that it hides no token."""
    at, parts = 0, []
    for ids in pieces:
        parts.append({"token_ids": list(ids), "logprobs": {"content": lps["content"][at : at + len(ids)]}})
        at += len(ids)
    return [*parts, {"token_ids": [], "finish_reason": "length"}]


def text_of(ids: Sequence[int], name: str, *, skip: bool) -> str:
    made = Detokenizer(model(name).tokenizer, skip_special_tokens=skip)
    return made.feed(ids)


@pytest.mark.parametrize("name", TOKENIZERS)
@quick
@given(data=st.data(), skip=st.booleans())
def test_text(name: str, data: st.DataObject, skip: bool) -> None:
    """A window that travels between calls gives what one that stays gives, and never grows with the output."""
    ids, pieces = data.draw(cut_ids(name))
    state = StreamState()
    text = ""
    for piece in pieces:
        call = Detokenizer(model(name).tokenizer, skip_special_tokens=skip)
        call.restore(state)
        text += call.feed(piece)
        call.save(state, fed=bool(piece))
        assert state.prefix_offset == 0
    assert text == text_of(ids, name, skip=skip)


def by_the_letter(ids: Sequence[int], name: str) -> str:
    """The rule of pipeline.md 7, as it is written there."""
    tokenizer = model(name).tokenizer
    pieces: list[str] = []
    emitted, text = 0, ""
    for token_id in ids:
        if token_id in tokenizer.special_ids:
            continue
        piece = tokenizer.piece(token_id)
        pieces.append("" if piece is None else piece)
        old, new = tokenizer.decode_pieces(pieces[:emitted]), tokenizer.decode_pieces(pieces)
        if len(new) > len(old) and not new.endswith("\ufffd"):
            text += new[len(old) :]
            pieces = pieces[emitted:]
            emitted = len(pieces)
    return text


@pytest.mark.parametrize(("name", "first"), [("R", 0), ("R2", 3)])
@quick
@given(data=st.data())
def test_the_shortcut_for_garbage_changes_nothing(name: str, first: int, data: st.DataObject) -> None:
    byte = st.one_of(st.sampled_from([0x80, 0x80, 0xC3, 0xA9, 0xE6, 0x97, 0xA5, 0xF0]), st.integers(0, 255)).map(lambda b: b + first)
    runs = st.tuples(st.one_of(byte, st.just(9999)), st.integers(1, 30)).map(lambda run: [run[0]] * run[1])
    parts = data.draw(st.lists(st.one_of(byte.map(lambda b: [b]), runs), max_size=40))
    ids = [i for part in parts for i in part]
    assert text_of(ids, name, skip=True) == by_the_letter(ids, name)


@pytest.mark.parametrize("name", TOKENIZERS)
@quick
@given(words=st.lists(st.sampled_from([word for word in WORDS if word != "\ufffd"]), min_size=1, max_size=8))
def test_good_text_comes_back_as_it_was(name: str, words: list[str]) -> None:
    text = "".join(words)
    tokenizer = model(name).tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert text_of(ids, name, skip=True) == tokenizer.decode(ids, skip_special_tokens=True)
    if name != "R2":
        assert text_of(ids, name, skip=True) == text


@pytest.mark.parametrize("name", TOKENIZERS)
@quick
@given(data=st.data(), as_ids=st.booleans())
def test_chat_chunks_add_up_to_the_whole(name: str, data: st.DataObject, as_ids: bool) -> None:
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    request = {"messages": HI, "logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": as_ids}
    prompt = data.draw(st.one_of(st.none(), ids_of(name)))
    shared = {"prompt_token_ids": prompt}
    want = derendered(model(name), {"generate_response": response(ids, lps), "chat_request": request, **shared})["choices"][0]
    calls = [body["chunk"]["choices"][0] for body in chunked(model(name), pieces, lps, chat_request=request, **shared)]
    assert "".join(call["delta"]["content"] for call in calls if call["delta"]["content"] is not None) == want["message"]["content"]
    assert [entry for call in calls for entry in call["logprobs"]["content"]] == want["logprobs"]["content"]


@pytest.mark.parametrize("name", TOKENIZERS)
@quick
@given(data=st.data(), as_ids=st.booleans())
def test_completion_chunks_add_up_to_the_whole(name: str, data: st.DataObject, as_ids: bool) -> None:
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    request = {"prompt": "x", "logprobs": 1, "return_tokens_as_token_ids": as_ids}
    body = {"generate_responses": [response(ids, lps)], "completion_request": request}
    want = derendered(model(name), body, "completion")["choices"][0]
    calls = [made["chunk"]["choices"][0] for made in chunked(model(name), pieces, lps, "completion", completion_request=request)]
    assert "".join(call["text"] for call in calls) == want["text"]
    for key, values in want["logprobs"].items():
        assert [value for call in calls for value in call["logprobs"][key]] == values


@pytest.mark.parametrize("name", TOKENIZERS)
@quick
@given(data=st.data(), as_ids=st.booleans())
def test_coupled_and_derendered_agree(name: str, data: st.DataObject, as_ids: bool) -> None:
    """Streamed, whole, and through /derender; a placeholder's bytes are the one thing that differs."""
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    fields = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": as_ids}
    answer, _ = coupled(model(name), parts_of(pieces, lps), **fields)
    _, chunks = coupled(model(name), parts_of(pieces, lps), stream=True, **fields)
    choice = whole(answer)["choices"][0]
    derender = whole_chat(model(name), ids, lps, fields, prompt_token_ids=answer.rendered.token_ids)["choices"][0]
    streamed = [part for chunk in chunks for part in chunk["choices"]]
    assert choice["message"]["content"] == derender["message"]["content"] == "".join(part["delta"]["content"] for part in streamed)
    shown = [entry for part in streamed if part["logprobs"] is not None for entry in part["logprobs"]["content"]]
    assert choice["logprobs"]["content"] == shown
    assert blanked(shown, as_ids) == blanked(derender["logprobs"]["content"], as_ids)


def blanked(entries: list[dict[str, Any]], blank: bool) -> list[Any]:
    if not blank:
        return entries
    return [[entry["token"], entry["logprob"], [[top["token"], top["logprob"]] for top in entry["top_logprobs"]]] for entry in entries]


@pytest.mark.parametrize("name", TOKENIZERS)
@quick
@given(data=st.data(), stops=st.lists(st.sampled_from(["e", "the", "本", " t", "\n", "😀", "é"]), min_size=1, max_size=3))
def test_stop_strings_end_the_same_text_at_the_same_place(name: str, data: st.DataObject, stops: list[str]) -> None:
    ids, pieces = data.draw(cut_ids(name))
    lps = lps_of(ids, model(name).vocab_size)
    cut, _ = coupled_text(model(name), parts_of(pieces, lps), stop=stops, logprobs=1, return_token_ids=True)
    single, _ = coupled_text(model(name), parts_of([[i] for i in ids], lps), stop=stops, logprobs=1, return_token_ids=True)
    free, _ = coupled_text(model(name), parts_of(pieces, lps))
    made = whole(cut)
    assert made["choices"] == whole(single)["choices"]
    assert made["usage"] == whole(single)["usage"]
    choice, full = made["choices"][0], whole(free)["choices"][0]["text"]
    assert full.startswith(choice["text"])
    assert not any(stop in choice["text"] for stop in stops)
    assert len(choice["logprobs"]["tokens"]) == len(choice["token_ids"]) == made["usage"]["completion_tokens"]
    if choice["stop_reason"] is not None:
        assert full.startswith(choice["text"] + choice["stop_reason"])
