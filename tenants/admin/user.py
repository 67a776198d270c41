"""Users belong to the platform, not to a tenant: superusers alone see them. A tenant's people are its members.

A user is switched off, never deleted: the log of what was done by whom would go with it.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from tenants.admin.audited import AuditedAdmin
from tenants.admin.site import site


@admin.register(User, site=site)
class UserAdmin(DjangoUserAdmin, AuditedAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser")
    fieldsets = (
        (None, {"fields": ("username", "password", "email")}),
        ("May", {"fields": ("is_active", "is_staff", "is_superuser")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")
    filter_horizontal = ()

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Django saves here by itself."""
        with self.recorded(request, filter(None, [self.get_object(request, id)])):
            return super().user_change_password(request, id, form_url)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    has_change_permission = has_view_permission

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)
