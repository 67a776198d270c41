"""Mistral's tekken.json: a small one for the rules, the real one for the ids.

`fixtures/tekken/ids.json` was recorded with mistral-common 1.13.1.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from inference.engine.config import eos_ids, vocabulary
from inference.engine.vocabulary import token_bytes
from inference.tekken import tokenizer_json
from inference.tokenizer import Tokenizer
from tests.inference.families import Missing, tokenizer_folder
from tests.inference.samples import FIXTURES

RECORDED: list[tuple[str, list[int]]] = json.loads((FIXTURES / "tekken" / "ids.json").read_text())
TOKENS = [*(bytes([byte]) for byte in range(256)), b"ab", b"bc", b"abc", "é".encode(), b" x", b"aaa", b"aa", b"cut off"]
SPECIALS = ["<unk>", "<s>", "</s>", "[INST]"]


def small(**fields: Any) -> dict[str, Any]:
    """8 special tokens, of which 4 have names; then `TOKENS` without the last."""
    vocab = [{"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for i, token in enumerate(TOKENS)]
    config = {
        "pattern": r"\p{L}+| ?[^\s\p{L}]+|\s+",
        "num_vocab_tokens": len(TOKENS),
        "default_vocab_size": 8 + len(TOKENS) - 1,
        "default_num_special_tokens": 8,
        "version": "v11",
    }
    listed = [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(SPECIALS)]
    return {"config": {**config, **fields}, "vocab": vocab, "special_tokens": listed}


def loaded(folder: Path, tekken: dict[str, Any]) -> Tokenizer:
    (folder / "tekken.json").write_text(json.dumps(tekken))
    return Tokenizer.load(folder)


def test_special_tokens_come_first_then_the_vocabulary_as_far_as_the_model_has_it(tmp_path: Path) -> None:
    made = loaded(tmp_path, small())
    assert (made.vocab_size, made.special_ids) == (8 + len(TOKENS) - 1, set(range(8)))
    assert [made.piece(i) for i in range(8)] == [*SPECIALS, "<SPECIAL_4>", "<SPECIAL_5>", "<SPECIAL_6>", "<SPECIAL_7>"]
    assert [made.raw(8 + i) for i in range(len(TOKENS))] == [*TOKENS[:-1], b""]
    assert (made.bos_token_id, made.eos_token_id) == (1, 2)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("abc", [b"abc"]),
        ("abcd", [b"abc", b"d"]),  # by "ab", which ranks before "bc"
        ("xbc", [b"x", b"bc"]),
        ("aaaa", [b"aaa", b"a"]),  # "aa" is the only way to "aaa", though it ranks after it
        ("aaa", [b"aaa"]),
        ("é", ["é".encode()]),
        ("😀", [b"\xf0", b"\x9f", b"\x98", b"\x80"]),
    ],
)
def test_neighbours_join_by_the_rank_of_what_they_make(tmp_path: Path, text: str, tokens: list[bytes]) -> None:
    made = loaded(tmp_path, small())
    assert [made.raw(i) for i in made.encode(text, add_special_tokens=False)] == tokens
    assert made.decode(made.encode(text, add_special_tokens=True), skip_special_tokens=True) == text


def test_prompts_begin_with_bos_and_may_hold_special_tokens(tmp_path: Path) -> None:
    made = loaded(tmp_path, small())
    assert made.encode("[INST]a", add_special_tokens=True) == [1, 3, 8 + 97]


def test_an_ordinary_token_that_reads_like_a_special_one_gives_way(tmp_path: Path) -> None:
    tekken = small()
    tekken["vocab"][-2]["token_bytes"] = base64.b64encode(b"<s>").decode()
    assert loaded(tmp_path, tekken).bos_token_id == 1


def test_a_tokenizer_json_beside_it_wins(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((FIXTURES / "tokenizers" / "t1" / "tokenizer.json").read_bytes())
    assert loaded(tmp_path, small()).encode("a", add_special_tokens=True) == [97]


def test_old_versions_need_not_list_their_special_tokens(tmp_path: Path) -> None:
    tekken = {**small(version="v3", default_num_special_tokens=24), "special_tokens": None}
    names = [token["content"] for token in tokenizer_json(tekken)["added_tokens"]]
    assert [names[i] for i in (0, 9, 19, 20)] == ["<unk>", "[TOOL_CALLS]", "[TOOL_CONTENT]", "<SPECIAL_20>"]
    with pytest.raises(ValueError, match="v13 lists no special_tokens"):
        tokenizer_json({**tekken, "config": {**tekken["config"], "version": "v13"}})


@pytest.mark.parametrize("field", ["vocab", "config"])
def test_what_is_no_tekken_is_told(tmp_path: Path, field: str) -> None:
    tekken = small()
    del tekken[field]
    with pytest.raises(ValueError, match=field):
        loaded(tmp_path, tekken)


def test_the_engine_reads_it_too(tmp_path: Path) -> None:
    loaded(tmp_path, small())
    assert max(vocabulary(str(tmp_path)).values()) == 8 + len(TOKENS) - 2
    assert eos_ids(str(tmp_path)) == [2]
    found = token_bytes(str(tmp_path), 300)
    assert found is not None
    assert (found.tokens[2], found.tokens[8:20], found.special) == (b"</s>", TOKENS[:12], set(range(8)))


@pytest.fixture(scope="module")
def tekken() -> Tokenizer:
    try:
        return Tokenizer.load(tokenizer_folder("tekken"))
    except Missing as exc:
        pytest.skip(str(exc))


@pytest.mark.parametrize(("text", "ids"), RECORDED, ids=map(str, range(len(RECORDED))))
def test_ids_are_those_of_mistrals_own_tokenizer(tekken: Tokenizer, text: str, ids: list[int]) -> None:
    assert tekken.encode(text, add_special_tokens=False) == ids
    assert tekken.encode(text, add_special_tokens=True) == [1, *ids]
    assert tekken.decode(ids) == text


def test_what_the_real_file_says(tekken: Tokenizer) -> None:
    assert (tekken.vocab_size, tekken.eos_token_id, tekken.special_ids) == (131072, 2, set(range(1000)))
    assert tekken.encode("[TOOL_CALLS]", add_special_tokens=False) == [9]
