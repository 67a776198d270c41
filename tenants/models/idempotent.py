from __future__ import annotations

from datetime import datetime

from django.db import models

from tenants.models.key import Key


class IdempotentCall(models.Model):
    """A call under an Idempotency-Key: what was asked, and the key that it made or changed, for as long as it may be repeated.

    The secret that it showed is not stored: it is derived from `salt` under the server's pepper, and gone with this row.
    """

    key: Key = models.ForeignKey(Key, on_delete=models.CASCADE, related_name="idempotent_calls")  # the caller's
    name: str = models.CharField(max_length=255)
    fingerprint: bytes = models.BinaryField(max_length=32)
    result: Key = models.ForeignKey(Key, on_delete=models.CASCADE, related_name="+")
    salt: bytes = models.BinaryField(max_length=32)
    pepper_version: int = models.PositiveIntegerField()
    expires_at: datetime = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "name"], name="idempotent_once")]

    def __str__(self) -> str:
        return self.name
