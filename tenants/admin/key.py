from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from tenants import keys, selectors, services
from tenants.admin.audited import actor_of
from tenants.admin.fields import ModelListField
from tenants.admin.scoped import MAKERS, TenantScopedAdmin
from tenants.admin.site import site
from tenants.models import Key

FIELDS = ("tenant", "name", "scopes", "allowed_models", "expires_at")
FIELDS_IN_WORDS = ("tenant", "name", "shown_scopes", "shown_models", "expires_at")  # for who may not edit them
FACTS = ("shown_id", "state_label", "created_by", "created", "revoked_at")
STATE_COLORS = {"active": "success", "expired": "warning", "revoked": "danger"}
CONFIRM_REVOKE = {
    "title": "Revoke this key?",
    "description": "It stops working within a second, for good. Whoever uses it needs another one.",
    "form_class": BaseDialogForm,
    "form_submit_text": "Revoke",
}


class KeyForm(forms.ModelForm):
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in keys.SCOPES], initial=keys.DEFAULT_SCOPES, widget=UnfoldAdminCheckboxSelectMultipleWidget
    )
    allowed_models = ModelListField(label="Models", every="Every model of the tenant")

    class Meta:
        model = Key
        fields = FIELDS


class StateFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state, state.capitalize()) for state in STATE_COLORS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Key]) -> QuerySet[Key]:
        past = Q(expires_at__lte=timezone.now())
        chosen = {"active": Q(revoked_at=None) & ~past, "expired": Q(revoked_at=None) & past, "revoked": ~Q(revoked_at=None)}
        return queryset.filter(chosen.get(self.value(), Q()))


@admin.register(Key, site=site)
class KeyAdmin(TenantScopedAdmin):
    """A key is shown once, in the answer to the form that made it, and kept nowhere.

    It is revoked, never deleted: what it used stays accounted for.
    """

    form = KeyForm
    adders = MAKERS
    list_display = ("name", "tenant", "shown_id", "state_label", "created_by", "expires_at", "created")
    list_filter = (StateFilter,)
    list_select_related = ("tenant", "created_by__user")
    search_fields = ("name", "public_id", "last_four")
    readonly_fields = (*FACTS, "shown_scopes", "shown_models")
    actions = ("revoke_selected",)
    actions_detail = ("revoke",)

    # Who may

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or obj.revoked_at is None)

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_change_permission(request, None if object_id is None else self.get_object(request, object_id))

    # What the pages show

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return FIELDS
        return (FIELDS if self.has_change_permission(request, obj) else FIELDS_IN_WORDS) + FACTS

    @display(description="Key", ordering="public_id")
    def shown_id(self, key: Key) -> str:
        return f"tk_{key.public_id}_…{key.last_four}"

    @display(description="State", label=STATE_COLORS)
    def state_label(self, key: Key) -> str:
        return key.state

    @display(description="Scopes")
    def shown_scopes(self, key: Key) -> str:
        return ", ".join(key.scopes)

    @display(description="Models")
    def shown_models(self, key: Key) -> str:
        return "Every model of the tenant" if key.allowed_models is None else ", ".join(key.allowed_models) or "None"

    # What they do

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        obj.created_by = selectors.memberships(request.user).filter(tenant=obj.tenant).first()
        obj.shown_once = services.issue(key=obj, actor=actor_of(request))

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """The one page with the secret, whatever button was pressed; not a redirect, which would have to keep the secret somewhere."""
        url = reverse("admin:tenants_key_change", args=(obj.pk,), current_app=self.admin_site.name)
        context = {**self.admin_site.each_context(request), "title": f"Key {obj.name}", "secret": obj.shown_once, "key_url": url}
        return TemplateResponse(request, "tenants/key_shown.html", context, headers={"Cache-Control": "no-store"})

    @action(description="Revoke", icon="block", variant=ActionVariant.DANGER, permissions=["revoke"], dialog=CONFIRM_REVOKE)
    def revoke(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        key = self.get_object(request, object_id)
        self.revoke_one(request, key)
        messages.success(request, f"{key} is revoked.")
        url = reverse("admin:tenants_key_change", args=(key.pk,), current_app=self.admin_site.name)
        return HttpResponse(headers={"HX-Redirect": url}) if "HX-Request" in request.headers else HttpResponseRedirect(url)

    @admin.action(description="Revoke selected keys", permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[Key]) -> None:
        chosen = [key for key in queryset if self.has_change_permission(request, key)]
        for key in chosen:
            self.revoke_one(request, key)
        messages.success(request, f"{len(chosen)} keys revoked.")

    def revoke_one(self, request: HttpRequest, key: Key) -> None:
        services.revoke_key(key=key, actor=actor_of(request))
        self.log_change(request, key, "Revoked.")
