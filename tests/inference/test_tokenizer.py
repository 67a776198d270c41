"""The tokenizer: pieces, texts, offsets, and what is no text at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inference.errors import BadRequest
from inference.tokenizer import Tokenizer
from tests.inference.samples import FIXTURES, b, model

T1, T2, SMOL = (model(name).tokenizer for name in ("R", "R2", "smollm2"))


def test_what_the_files_say() -> None:
    assert (T1.vocab_size, T1.eos_token_id, T1.bos_token_id, T1.special_ids) == (266, 258, None, {256, 257, 258})
    assert (T2.vocab_size, T2.eos_token_id, T2.bos_token_id) == (303, 2, 1)
    assert (SMOL.vocab_size, SMOL.eos_token_id, len(SMOL.special_ids)) == (49152, 2, 17)


def test_one_token_per_digit() -> None:
    """The trap of the converted tokenizer: it would join digits."""
    assert [SMOL.decode([i]) for i in SMOL.encode("12+34?", add_special_tokens=False)] == list("12+34?")


def test_special_tokens_in_a_text_are_special_tokens() -> None:
    assert T1.encode("a<|im_end|>", add_special_tokens=False) == [97, 258]


def test_offsets_are_code_points() -> None:
    assert T1.encode_with_offsets("é😀", add_special_tokens=False)[1] == [[0, 1], [0, 1], [1, 2], [1, 2], [1, 2], [1, 2]]


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b"])
def test_half_a_surrogate_pair_is_no_text(text: str) -> None:
    with pytest.raises(BadRequest):
        T1.encode(text, add_special_tokens=False)
    with pytest.raises(BadRequest):
        T1.encode_with_offsets(text, add_special_tokens=False)


def test_decoding() -> None:
    assert T1.decode([72, 258, 105]) == "H<|im_end|>i"
    assert T1.decode([72, 258, 105], skip_special_tokens=True) == "Hi"
    assert T1.decode([72, 9999, -1, 105]) == "Hi"
    assert T2.decode([268, 276]) == "Hello there"
    assert (T1.piece(195), T1.piece(-1), T1.piece(266), T1.token_to_id("<think>")) == ("Ã", None, None, 259)


def test_the_text_of_one_token() -> None:
    assert (T2.text(280).text, T2.text(294).text, T2.text(280).bytes) == (" true", "true", tuple(b" true"))
    assert (T1.text(9999).text, T1.text(9999).bytes) == ("", None)
    assert T1.text(65) is T1.text(65)


@pytest.mark.parametrize("token_id", [-1, -65, T1.vocab_size, 10**9])
def test_outside_the_vocabulary_there_is_no_text(token_id: int) -> None:
    assert (T1.text(token_id).text, T1.text(token_id).bytes, T1.raw(token_id)) == ("", None, b"")


def test_byte_level_texts_follow_one_another() -> None:
    assert [each.concatenates for each in (T1, T2)] == [True, False]


@pytest.mark.parametrize(("tokenizer", "first"), [(T1, 0), (T2, 3)])
def test_which_tokens_can_end_a_character(tokenizer: Tokenizer, first: int) -> None:
    """Bytes 80 to BF continue a character, so they alone can end one; C2 and above can only begin one."""
    for byte in (0x80, 0xA9, 0xBF):
        assert (tokenizer.text(first + byte).broken, tokenizer.text(first + byte).completes) == (True, True)
    for byte in (0xC3, 0xE6, 0xF0, 0xFF):
        assert (tokenizer.text(first + byte).broken, tokenizer.text(first + byte).completes) == (True, False)


def test_a_template_may_stand_in_a_file_or_in_a_list(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    config = {"chat_template": templates, "eos_token": {"content": "</s>"}}
    (tmp_path / "tokenizer.json").write_bytes((FIXTURES / "tokenizers" / "t2" / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    listed = Tokenizer.load(tmp_path)
    assert (listed.chat_template, listed.tool_chat_template, listed.eos_token_id) == ("D", "T", 2)
    (tmp_path / "chat_template.jinja").write_text("F")
    filed = Tokenizer.load(tmp_path)
    assert filed.chat_template == "F"
    assert filed.fingerprint != listed.fingerprint


def test_settings_of_a_training_do_not_cut_prompts(tmp_path: Path) -> None:
    saved = json.loads((FIXTURES / "tokenizers" / "t1" / "tokenizer.json").read_text())
    saved["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    assert Tokenizer.load(tmp_path).encode("abcd", add_special_tokens=True) == b("abcd")


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)
