from __future__ import annotations

from django.db import models

from tenants.models.key import Key


class Ticket(models.Model):
    """A browser's way to a WebSocket: good once, for a minute, for one key and one model. Only its digest is kept."""

    digest = models.BinaryField(unique=True, editable=False, max_length=32)
    key = models.ForeignKey(Key, on_delete=models.CASCADE, editable=False)
    model = models.CharField(max_length=200, blank=True, editable=False)  # "": every model that the key may use
    expires_at = models.DateTimeField(db_index=True, editable=False)

    def __str__(self) -> str:
        return f"ticket of {self.key_id}"
