"""What is over and of no use to anybody: tickets, repeatable calls and retired secrets past their time."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from tenants.models import IdempotentCall, RetiredSecret, Ticket

EXPIRING: tuple[Any, ...] = (Ticket, IdempotentCall, RetiredSecret)


def forget_expired() -> int:
    """Returns how many rows are gone."""
    now = timezone.now()
    return sum(int(model.objects.filter(expires_at__lte=now).delete()[0]) for model in EXPIRING)
