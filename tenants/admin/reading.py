"""Tables that are read and never written by hand: the ledger, its sums, and the audit log."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from tenants.admin.scoped import MANAGERS, TenantScopedAdmin
from tenants.admin.site import site
from tenants.models import AuditEntry, Entry, Rollup

STATUS_COLORS = {"started": "info", "completed": "success", "cancelled": "warning", "failed": "danger", "interrupted": "danger"}


class ReadingAdmin(TenantScopedAdmin):
    """Nobody adds, changes or deletes; not superusers either. Rows are not counted: there may be millions."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Entry, site=site)
class EntryAdmin(ReadingAdmin):
    list_display = ("created", "tenant", "key", "model", "endpoint", "status_label", "shown_tokens", "money")
    list_filter = ("status",)
    list_select_related = ("tenant", "key")
    search_fields = ("request_id", "model")
    fields = (
        ("tenant", "key"), ("model", "endpoint", "request_id"), ("status_label", "created", "settled"),
        ("prompt_tokens", "completion_tokens", "cached_tokens"), "money", "shown_effective",
    )
    readonly_fields = ("status_label", "money", "shown_effective")

    @display(description="Status", label=STATUS_COLORS, ordering="status")
    def status_label(self, entry: Entry) -> str:
        return entry.status

    @display(description="Tokens")
    def shown_tokens(self, entry: Entry) -> str:
        return f"{entry.prompt_tokens:,} + {entry.completion_tokens:,}"

    @display(description="What applied")
    def shown_effective(self, entry: Entry) -> SafeString:
        return as_code(entry.effective)


@admin.register(Rollup, site=site)
class RollupAdmin(ReadingAdmin):
    list_display = ("day", "tenant", "key", "model", "requests", "failed", "prompt_tokens", "completion_tokens", "money")
    list_filter = ("model",)
    list_select_related = ("tenant", "key")
    search_fields = ("model",)


@admin.register(AuditEntry, site=site)
class AuditEntryAdmin(ReadingAdmin):
    """What managers did is for managers to see."""

    viewers = MANAGERS
    list_display = ("at", "tenant", "actor_name", "action", "object_type", "object_name", "source")
    list_filter = ("action", "object_type")
    list_select_related = ("tenant",)
    search_fields = ("actor_name", "object_name")
    fields = (("at", "tenant"), ("actor_name", "actor", "source"), ("action", "object_type", "object_name"), "shown_before", "shown_after")
    readonly_fields = ("shown_before", "shown_after")

    @display(description="Before")
    def shown_before(self, entry: AuditEntry) -> SafeString:
        return as_code(entry.before)

    @display(description="After")
    def shown_after(self, entry: AuditEntry) -> SafeString:
        return as_code(entry.after)


def as_code(value: Any) -> SafeString:
    return format_html('<pre tabindex="0">{}</pre>', json.dumps(value, indent=2, ensure_ascii=False))


def sees_audit(request: HttpRequest) -> bool:
    """For the navigation."""
    return bool(site.get_model_admin(AuditEntry).has_module_permission(request))
