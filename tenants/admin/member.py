from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminEmailInputWidget, UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from tenants import services
from tenants.admin.audited import actor_of
from tenants.admin.scoped import Roles, TenantScopedAdmin, held_roles
from tenants.admin.site import site
from tenants.models import Member, Role, Tenant


class MemberForm(forms.ModelForm):
    """`held` are the roles of whoever fills it in, by tenant id; None for a superuser."""

    held: Mapping[int, str] | None = None

    class Meta:
        model = Member
        fields = ("tenant", "role", "active")

    def clean_role(self) -> str:
        """Only owners make owners: an admin could else take the tenant over."""
        role: str = self.cleaned_data["role"]
        tenant: Tenant | None = self.cleaned_data.get("tenant") or getattr(self.instance, "tenant", None)
        if role == Role.OWNER and self.held is not None and tenant is not None and self.held.get(tenant.pk) != Role.OWNER:
            raise ValidationError("Only an owner can make someone an owner.")
        return role


class NewMemberForm(MemberForm):
    """A new user, or (for superusers) one who exists. Existing users are not offered to a tenant: they may be another's people."""

    username = forms.CharField(
        max_length=150, required=False, widget=UnfoldAdminTextInputWidget, help_text="To log in with; an e-mail address will do."
    )
    email = forms.EmailField(required=False, widget=UnfoldAdminEmailInputWidget)
    password = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminPasswordWidget({"autocomplete": "new-password"}),
        help_text="Can be changed after the first login.",
    )

    made: Any = None  # the new user, not saved yet

    class Meta(MemberForm.Meta):
        fields = ("tenant", "role", "user")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if user := self.fields.get("user"):
            user.required = False
            user.help_text = "Someone who has a login already; leave it empty to make a new one."
        else:
            self.fields["username"].required = self.fields["password"].required = True

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        given = {name: cleaned.get(name, "") for name in ("username", "email", "password")}
        if cleaned.get("user") is None:
            self.made = services.new_user(**given)
        elif any(given.values()):
            raise ValidationError("Choose a user or make a new one, not both.")
        return cleaned


@admin.register(Member, site=site)
class MemberAdmin(TenantScopedAdmin):
    form = MemberForm
    list_display = ("user", "tenant", "role", "active", "created")
    list_filter = ("role", "active")
    list_select_related = ("user", "tenant")
    search_fields = ("user__username", "user__email")
    autocomplete_fields = ("user",)

    def allowed(self, request: HttpRequest, obj: Any, roles: Roles) -> bool:
        """An owner is beyond an admin's reach."""
        if not super().allowed(request, obj, roles):
            return False
        touching = roles is not self.viewers and obj is not None and obj.role == Role.OWNER
        return not touching or request.user.is_superuser or held_roles(request).get(obj.tenant_id) == Role.OWNER

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> type[MemberForm]:
        if obj is None:
            kwargs["form"] = NewMemberForm
        form: type[MemberForm] = super().get_form(request, obj, change=change, **kwargs)
        form.held = None if request.user.is_superuser else held_roles(request)
        return form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is not None:
            return ("tenant", "user", "role", "active", "created")
        return ("tenant", "role", *(("user",) if request.user.is_superuser else ()), "username", "email", "password")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (*super().get_readonly_fields(request, obj), *(() if obj is None else ("user", "created")))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, set[str], Any]:
        """A member who made keys stays, and the page says so; that keys cannot be deleted at all would be the lesser half of it."""
        listed, counts, lacking, protected = super().get_deleted_objects(objs, request)
        return listed, counts, lacking - {"key"} if protected else lacking, protected

    def save_model(self, request: HttpRequest, obj: Member, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        if form.made is not None:
            obj.user = form.made
        services.place(member=obj, actor=actor_of(request))
