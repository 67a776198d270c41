from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import models


class Checked(models.Model):
    """A row that is validated whenever it is saved, by whomever."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.full_clean()
        super().save(*args, **kwargs)


def is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


def check_model_list(value: Any) -> None:
    """An allow-list of models: null for no list, [] for none."""
    if value is not None and not is_names(value):
        raise ValidationError("A list of model names is needed, or nothing.")
