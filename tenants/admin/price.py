from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from tenants.admin.audited import AuditedAdmin
from tenants.admin.site import site
from tenants.models import Price


@admin.register(Price, site=site)
class PriceAdmin(AuditedAdmin):
    """Prices are the platform's, and the same for all tenants. A change holds for requests that begin after it."""

    list_display = ("model", "input", "output", "shown_cached")
    search_fields = ("model",)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    has_change_permission = has_delete_permission = has_view_permission

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    @display(description="Cached")
    def shown_cached(self, price: Price) -> str:
        return "as other input" if price.cached is None else str(price.cached)
