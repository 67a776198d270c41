"""Whatever is written in the admin is in the audit log, by whom and from which address."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Model, QuerySet
from django.db.models.deletion import Collector
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from tenants.audit import Actor, audited, user_actor


def actor_of(request: HttpRequest) -> Actor:
    return user_actor(request.user, f"admin {request.META.get('REMOTE_ADDR', '')}".strip())


class AuditedAdmin(ModelAdmin):
    """A subclass that saves in a way of its own does so within `recorded`, or hands `actor_of` on to a service."""

    def recorded(self, request: HttpRequest, rows: Iterable[Model]) -> ExitStack:
        """While inside, what happens to the rows is noted."""
        with ExitStack() as stack:
            for row in rows:
                stack.enter_context(audited(row, actor=actor_of(request)))
            return stack.pop_all()

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        with self.recorded(request, [obj]):
            super().save_model(request, obj, form, change)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Inlines: rows that are new, changed or to be deleted."""
        with self.recorded(request, [each.instance for each in formset.forms]):
            super().save_formset(request, form, formset, change)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with self.recorded(request, going([obj])):
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with self.recorded(request, going(list(queryset))):
            super().delete_queryset(request, queryset)


def going(rows: list[Model]) -> list[Model]:
    """These rows, and what a deletion takes along with them."""
    collector = Collector(using=DEFAULT_DB_ALIAS, origin=rows)
    collector.collect(rows)
    return [*(row for found in collector.data.values() for row in found), *(row for found in collector.fast_deletes for row in found)]
