"""Mistral's tekken.json as a tokenizer.json, so that the same library runs it: the ids are those of Mistral's own tokenizer.

The file lists tokens as bytes, by rank: of two neighbours, those join first whose joined bytes have the lowest rank. The library wants each
such pair written out. Special tokens have the first ids, in a block of fixed size; the ordinary ones follow, cut to the size of the model.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from inference.pieces import byte_alphabet

ALPHABET = {byte: char for char, byte in byte_alphabet().items()}
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
# Files before v11 need not list their special tokens; these are the ones they mean.
UNLISTED_VERSIONS = ("v1", "v2", "v3", "v7")
UNLISTED = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)  # fmt: skip


def tokenizer_json(tekken: Mapping[str, Any]) -> dict[str, Any]:
    """Every special token is one to the library as well: hidden from texts where these are skipped, and recognized in prompts.

    Raises:
        ValueError: the file lacks what it must have; one of a newer version lists its special tokens.
    """
    if lacking := [name for name in ("vocab", "config") if name not in tekken]:
        raise ValueError(f"tekken.json lacks {lacking[0]}.")
    special = special_tokens(tekken)
    ranks = token_ranks(tekken, len(special))
    pieces = {token: as_piece(token) for token in ranks}
    ids = {piece: i for i, piece in enumerate(pieces.values(), len(special))} | {content: i for i, content in enumerate(special)}
    split = {"type": "Split", "pattern": {"Regex": tekken["config"]["pattern"]}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(i, content) for i, content in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": beginning("<s>", ids["<s>"]),
        "decoder": byte_level,
        "model": {"type": "BPE", "ignore_merges": True, "vocab": ids, "merges": merges(ranks, pieces)},
    }


def special_tokens(tekken: Mapping[str, Any]) -> list[str]:
    """By id, the block's unused places under names of their own."""
    listed, config = tekken.get("special_tokens"), tekken["config"]
    if listed is None and config["version"] not in UNLISTED_VERSIONS:
        raise ValueError(f"tekken.json of version {config['version']} lists no special_tokens.")
    names = list(UNLISTED) if listed is None else [token["token_str"] for token in listed]
    return names + [f"<SPECIAL_{i}>" for i in range(len(names), config["default_num_special_tokens"])]


def token_ranks(tekken: Mapping[str, Any], specials: int) -> dict[bytes, int]:
    kept = tekken["vocab"][: tekken["config"]["default_vocab_size"] - specials]
    return {base64.b64decode(token["token_bytes"]): rank for rank, token in enumerate(kept)}


def as_piece(token: bytes) -> str:
    return "".join([ALPHABET[byte] for byte in token])


def merges(ranks: Mapping[bytes, int], pieces: Mapping[bytes, str]) -> list[tuple[str, str]]:
    """Every way in which two tokens make a third, by the rank of what they make."""
    found = []
    for token in ranks:
        halves = [(token[:i], token[i:]) for i in range(1, len(token))]
        ways = [(ranks[left], ranks[right], left, right) for left, right in halves if left in ranks and right in ranks]
        found += [(pieces[left], pieces[right]) for _, _, left, right in sorted(ways)]
    return found


def beginning(token: str, token_id: int) -> dict[str, Any]:
    """A post-processor that puts this token before a text that is to have special tokens."""
    parts = (("SpecialToken", token), ("Sequence", "A"), ("Sequence", "B"))
    first, text, second = ({kind: {"id": name, "type_id": 0}} for kind, name in parts)
    known = {token: {"id": token, "ids": [token_id], "tokens": [token]}}
    return {"type": "TemplateProcessing", "single": [first, text], "pair": [first, text, second], "special_tokens": known}


def added_token(token_id: int, content: str) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": content, **plain, "special": True}
