"""A request's id: the caller's where it is fit for a header, else a new one."""

from __future__ import annotations

import secrets

MAX_LENGTH = 256


def clean_id(given: str | None) -> str:
    """`given`, or 16 hexadecimal digits where nothing usable was given."""
    if given and len(given) <= MAX_LENGTH and given.isascii() and given.isprintable():
        return given
    return secrets.token_hex(8)
