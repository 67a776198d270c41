"""API keys: `tk_<public id>_<secret>`.

The secret is 256 random bits, so one HMAC under a server pepper is enough to store it by: a slow password hash would cost a request
hundreds of milliseconds and protect nothing more. The pepper has a version, so that it can be changed while old keys go on working.
No Django here.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

SHAPE = re.compile(r"tk_([0-9a-f]{16})_([0-9a-f]{64})")
NOBODY = ("", "")

INFERENCE = "inference"
USAGE_READ = "usage:read"
KEYS_MANAGE = "keys:manage"
SCOPES = (INFERENCE, USAGE_READ, KEYS_MANAGE)
DEFAULT_SCOPES = (INFERENCE, USAGE_READ)

Peppers = Mapping[int, bytes]


@dataclass(frozen=True)
class Secret:
    """A new key before it is stored. `text` is shown once; a repr never shows it."""

    public_id: str
    value: str = field(repr=False)

    @property
    def text(self) -> str:
        return f"tk_{self.public_id}_{self.value}"

    @property
    def last_four(self) -> str:
        return self.value[-4:]


def mint() -> Secret:
    return Secret(public_id=secrets.token_hex(8), value=secrets.token_hex(32))


def shaped(token: str | None) -> bool:
    """Whether the text can be a key at all; costs no look-up."""
    return token is not None and SHAPE.fullmatch(token) is not None


def split(token: str | None) -> tuple[str, str]:
    """(public id, secret), both empty where the text is no key: the caller then does the same work in vain."""
    match = SHAPE.fullmatch(token) if token is not None else None
    return (match[1], match[2]) if match else NOBODY


def newest(peppers: Peppers) -> int:
    return max(peppers)


def digest(secret: str, peppers: Peppers, version: int) -> bytes:
    """HMAC-SHA256 of the secret. A version that is gone costs the same and matches nothing."""
    pepper = peppers.get(version)
    return hmac.digest(secrets.token_bytes(32) if pepper is None else pepper, secret.encode(), "sha256")


def matches(secret: str, stored: bytes | None, peppers: Peppers, version: int | None) -> bool:
    """Constant time, and the same time where nothing is stored (None)."""
    made = digest(secret, peppers, newest(peppers) if version is None else version)
    return hmac.compare_digest(made, bytes(32) if stored is None else stored) and stored is not None
