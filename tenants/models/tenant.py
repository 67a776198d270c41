from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from tenants.models.checked import Checked, check_model_list

TAKEN = {"unique": "There is a tenant of this name already."}


def check_weight(value: float) -> None:
    if not 0 < value < math.inf:
        raise ValidationError("The weight must be a number above 0.")


class Tenant(Checked):
    """A customer: everything that members, keys, defaults and usage belong to."""

    name: str = models.CharField(max_length=100, unique=True, error_messages=TAKEN)
    slug: str = models.SlugField(max_length=100, unique=True, allow_unicode=True, error_messages=TAKEN)
    active: bool = models.BooleanField(default=True, help_text="Switching it off stops every key of the tenant within a second.")
    weight: float = models.FloatField(default=1.0, validators=[check_weight], help_text="Its share of the engine when others wait too.")
    allowed_models: list[str] | None = models.JSONField(
        null=True, blank=True, validators=[check_model_list], help_text="The models it may use; empty for all."
    )
    created: datetime = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """In order of power: an admin does all but touch owners, a developer makes keys, a viewer looks."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    VIEWER = "viewer"


class Member(Checked):
    """A user's place in a tenant."""

    tenant: Tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="members")
    user: Any = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role: str = models.CharField(max_length=20, choices=Role.choices, default=Role.DEVELOPER)
    active: bool = models.BooleanField(default=True, help_text="Switching it off stops the member and the keys that it made.")
    created: datetime = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "user"]
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="member_once")]

    def __str__(self) -> str:
        return str(self.user)
