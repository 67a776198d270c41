"""A token's own bytes, out of its vocabulary string. A text shows whole characters; grammars and offsets need what each token brings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

Form = Literal["bytes", "fallback", "text"]
BYTE = re.compile("<0x([0-9A-F]{2})>")
SPACE = "▁"  # SentencePiece's


def form_of(decoder: Mapping[str, Any] | None) -> Form:
    """How a vocabulary writes bytes, by its decoder as tokenizer.json has it.

    "bytes": each character stands for a byte (GPT-2's alphabet). "fallback": text, and bytes as <0x0A>. "text": nothing but text.
    """
    kinds = decoder_kinds(decoder)
    if "ByteLevel" in kinds:
        return "bytes"
    return "fallback" if "ByteFallback" in kinds else "text"


def decoder_kinds(decoder: Mapping[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    return {str(decoder.get("type"))}.union(*(decoder_kinds(part) for part in decoder.get("decoders", ())))


def piece_bytes(piece: str, form: Form) -> bytes:
    """The bytes of an ordinary token. Added tokens, special or not, are texts: they are their own UTF-8."""
    if form == "bytes":
        alphabet = byte_alphabet()
        values = [alphabet.get(char) for char in piece]
        return piece.encode() if None in values else bytes(value for value in values if value is not None)
    if form == "fallback" and (found := BYTE.fullmatch(piece)):
        return bytes([int(found[1], 16)])
    return piece.replace(SPACE, " ").encode()


@cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's: a printable Latin-1 character stands for itself, the other bytes follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
