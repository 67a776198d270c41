from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from unfold.decorators import display

from tenants.admin.scoped import Roles, TenantScopedAdmin
from tenants.admin.site import site
from tenants.models import Limit

BOUNDS = (
    ("requests_per_minute", "tokens_per_minute", "concurrency"),
    ("tokens_per_day", "tokens_per_month"),
    ("cost_per_day", "cost_per_month"),
)


class LimitForm(forms.ModelForm):
    """`staff`: whether whoever fills it in runs the platform."""

    staff = False

    class Meta:
        model = Limit
        fields = ("tenant", "key", *(name for row in BOUNDS for name in row))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        if not self.staff and cleaned.get("key", self.instance.key) is None:
            raise ValidationError({"key": "Choose a key: the limits of the whole tenant are set by the platform's staff."})
        return cleaned


@admin.register(Limit, site=site)
class LimitAdmin(TenantScopedAdmin):
    """A tenant's managers limit its keys; what the tenant as a whole may use is the platform's to say."""

    form = LimitForm
    list_display = ("shown_scope", "tenant", "shown_bounds")
    list_select_related = ("tenant", "key")
    search_fields = ("key__name", "tenant__name")

    def allowed(self, request: HttpRequest, obj: Any, roles: Roles) -> bool:
        if not super().allowed(request, obj, roles):
            return False
        touching = roles is not self.viewers and obj is not None and obj.key_id is None
        return not touching or bool(request.user.is_superuser)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> type[LimitForm]:
        form: type[LimitForm] = super().get_form(request, obj, change=change, **kwargs)
        form.staff = request.user.is_superuser
        return form

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[str | None, dict[str, Any]]]:
        return [(None, {"fields": (("tenant", "key"),)}), ("At most", {"fields": BOUNDS})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (*super().get_readonly_fields(request, obj), *(() if obj is None else ("key",)))

    @display(description="Of", ordering="key")
    def shown_scope(self, limit: Limit) -> str:
        return "The whole tenant" if limit.key is None else str(limit.key)

    @display(description="At most")
    def shown_bounds(self, limit: Limit) -> str:
        given = [(name, getattr(limit, name)) for row in BOUNDS for name in row]
        return ", ".join(f"{name.replace('_', ' ')}: {value:,}" for name, value in given if value is not None) or "no limit"
