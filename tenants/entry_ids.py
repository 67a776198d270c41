"""Ids of ledger rows: the milliseconds since 1970 and 80 random bits, in hexadecimal. Their order is the order of admission."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime


def new_id(at: datetime) -> str:
    return time_part(at) + secrets.token_hex(10)


def first_id(at: datetime) -> str:
    """Below every id of that millisecond, above every earlier one: a range of time is a range of ids."""
    return time_part(at) + "0" * 20


def time_part(at: datetime) -> str:
    """From whole numbers: a float has too few bits for what is compared here."""
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return f"{(since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000:012x}"
