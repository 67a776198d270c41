from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from tenants.admin.fields import ModelListField
from tenants.admin.scoped import NOBODY, TenantScopedAdmin
from tenants.admin.site import site
from tenants.models import Tenant


class TenantForm(forms.ModelForm):
    allowed_models = ModelListField(label="Models", every="Every model")

    class Meta:
        model = Tenant
        fields = ("name", "slug", "active", "weight", "allowed_models")


@admin.register(Tenant, site=site)
class TenantAdmin(TenantScopedAdmin):
    """Platform staff run the tenants; a tenant's people see their own. One is switched off, never deleted: its use stays accounted for."""

    tenant_path = "pk"
    adders = changers = NOBODY
    form = TenantForm
    list_display = ("name", "slug", "active", "weight", "created")
    list_filter = ("active",)
    search_fields = ("name", "slug")
    readonly_fields = ("belongings", "created")
    prepopulated_fields = {"slug": ("name",)}

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        fields = ("name", "slug", "active", "weight", "allowed_models")
        return fields if obj is None else (*fields, "belongings", "created")

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> dict[str, Any]:
        return {} if obj is not None else dict(self.prepopulated_fields)

    @admin.display(description="Belonging to it")
    def belongings(self, tenant: Tenant) -> SafeString:
        nouns = (("key", "Keys"), ("member", "Members"), ("defaults", "Defaults"))
        links = ((reverse(f"admin:tenants_{noun}_changelist"), tenant.pk, words) for noun, words in nouns)
        return format_html_join(" · ", '<a class="text-link" href="{}?tenant__id__exact={}">{}</a>', links)
