from __future__ import annotations

from datetime import datetime

from django.db import models

from tenants.models.key import Key


class RetiredSecret(models.Model):
    """The secret that a key had before its rotation, good for a while longer."""

    key: Key = models.OneToOneField(Key, on_delete=models.CASCADE, related_name="retired_secret")
    digest: bytes = models.BinaryField(max_length=32, editable=False)
    pepper_version: int = models.PositiveIntegerField(editable=False)
    expires_at: datetime = models.DateTimeField(editable=False)

    def __str__(self) -> str:
        return f"retired secret of {self.key_id}"
