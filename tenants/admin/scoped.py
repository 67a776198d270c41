"""Who sees and does what in the admin, in one place.

Superusers see all. Everybody else sees the rows of the tenants that they are an active member of, and does what their role there
allows; Django's own permissions play no part. A row of another tenant does not exist: 404, wherever it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.admin import RelatedOnlyFieldListFilter
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.widgets import RelatedFieldWidgetWrapper
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse

from tenants import selectors
from tenants.admin.audited import AuditedAdmin
from tenants.models import Role, Tenant

Roles = frozenset[str]
EVERYONE: Roles = frozenset(Role.values)
MANAGERS: Roles = frozenset({Role.OWNER, Role.ADMIN})
MAKERS: Roles = MANAGERS | {Role.DEVELOPER}
NOBODY: Roles = frozenset()


def held_roles(request: HttpRequest) -> Mapping[int, str]:
    """The user's role by tenant id, asked once per request. The login page asks too, of nobody yet."""
    held: Mapping[int, str] | None = getattr(request, "held_roles", None)
    if held is None:
        held = request.held_roles = selectors.roles_of(request.user) if request.user.is_authenticated else {}
    return held


class TenantScopedAdmin(AuditedAdmin):
    """A model whose rows belong to a tenant. Subclasses say which roles may do what."""

    tenant_path = "tenant_id"  # the lookup from a row to its tenant's id
    viewers: Roles = EVERYONE
    adders: Roles = MANAGERS
    changers: Roles = MANAGERS
    deleters: Roles = MANAGERS

    # Who may

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.allowed(request, None, self.viewers)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allowed(request, obj, self.viewers)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.allowed(request, None, self.adders)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allowed(request, obj, self.changers)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.allowed(request, obj, self.deleters)

    def allowed(self, request: HttpRequest, obj: Any, roles: Roles) -> bool:
        """With an object: in its tenant. Without: in any, which is what a list or a form to add something needs to know."""
        if request.user.is_superuser:
            return True
        held = held_roles(request)
        return any(role in roles for role in held.values()) if obj is None else held.get(self.tenant_id(obj)) in roles

    def tenant_id(self, obj: Any) -> int:
        return int(obj.pk if isinstance(obj, Tenant) else obj.tenant_id)

    # What there is

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Lists, searches, filters, actions, autocompletion, deletion and history all start from here."""
        rows = super().get_queryset(request)
        return rows if request.user.is_superuser else selectors.within(rows, held_roles(request), self.tenant_path)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Django asks for permission before it says that nothing is there; a 403 would tell that something is."""
        obj = super().get_object(request, object_id, from_field)
        if obj is None:
            raise Http404
        return obj

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs["queryset"] = self.choices(db_field.related_model, request)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Without the links beside a choice that add, change or delete in a window of their own."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is not None and isinstance(field.widget, RelatedFieldWidgetWrapper):
            field.widget = field.widget.widget
        return field

    def choices(self, model: Any, request: HttpRequest) -> QuerySet[Any]:
        """What a form may point to: of tenants those in which the user may add such a row, of other models what the user sees."""
        try:
            other = self.admin_site.get_model_admin(model)
        except NotRegistered:
            other = None
        rows = model.objects.all() if other is None else other.get_queryset(request)
        if request.user.is_superuser:
            return rows
        if not isinstance(other, TenantScopedAdmin):
            return model.objects.none()
        return rows.filter(pk__in=self.adding_tenants(request)) if model is Tenant else rows

    def adding_tenants(self, request: HttpRequest) -> list[int]:
        return [tenant for tenant, role in held_roles(request).items() if role in self.adders]

    # What the pages show

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Who has one tenant need not choose it."""
        tenants = [] if request.user.is_superuser else self.adding_tenants(request)
        asked: dict[str, Any] = super().get_changeform_initial_data(request)
        return {"tenant": tenants[0], **asked} if len(tenants) == 1 else asked

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Nothing moves to another tenant, by nobody's hand."""
        fields = tuple(super().get_readonly_fields(request, obj))
        return fields if obj is None or isinstance(obj, Tenant) else ("tenant", *fields)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> HttpResponse:
        """One way to save: what comes next is said by the page that follows."""
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **kwargs)

    def get_list_filter(self, request: HttpRequest) -> tuple[Any, ...]:
        """A filter by tenant for those who have several. Its choices are the tenants of visible rows, never all of them."""
        several = request.user.is_superuser or len(held_roles(request)) > 1
        by_tenant = () if self.model is Tenant or not several else (("tenant", RelatedOnlyFieldListFilter),)
        return (*by_tenant, *super().get_list_filter(request))

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        several = request.user.is_superuser or len(held_roles(request)) > 1
        columns = tuple(super().get_list_display(request))
        return columns if several else tuple(column for column in columns if column != "tenant")

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """By the tenant and by the declared filters alone: any other column could be read bit by bit through `?column__gt=`."""
        declared = {item if isinstance(item, str) else item.parameter_name for item in self.list_filter}
        return lookup in {"tenant", "tenant__id__exact"} or lookup.split("__")[0] in declared
