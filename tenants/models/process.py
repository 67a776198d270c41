from __future__ import annotations

from datetime import datetime

from django.db import models


class Process(models.Model):
    """A platform process, which says every few seconds that it is alive. The open rows of one that does not are swept."""

    id: str = models.CharField(primary_key=True, max_length=32)
    beat: datetime = models.DateTimeField()

    class Meta:
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return self.id
