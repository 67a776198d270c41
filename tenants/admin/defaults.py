from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import escape
from unfold.admin import TabularInline
from unfold.decorators import display
from unfold.forms import PaginationInlineFormSet

from inference.leaves import flatten
from inference.resolve import BUILT_IN, RANGED, TEMPLATE_KWARGS
from tenants.admin.fields import InheritableJSONField, SuggestingInput, TriStateField
from tenants.admin.preview import PreviewedAdmin
from tenants.admin.site import site
from tenants.defaults import COLUMNS, FLAG_COLUMNS, LEAF_PREFIX, NAMES, VALUE_COLUMNS
from tenants.inheritance import inherited, words
from tenants.models import Defaults, Policy

SCOPE = ("tenant", "model", "key")


def in_threes(fields: Sequence[Any]) -> list[Sequence[Any]]:
    """Three to a row."""
    return [fields[start : start + 3] for start in range(0, len(fields), 3)]


def in_words(column: str) -> Callable[[Defaults], str]:
    """The field of a page that shows a column to who may not edit it; it keeps the column's label and text."""

    def show(row: Defaults) -> str:
        value = getattr(row, column)
        return "inherit" if value is None else words(NAMES[column], value)

    show.__name__ = column
    return show


class PolicyFormSet(PaginationInlineFormSet):
    def _construct_form(self, i: int, **kwargs: Any) -> Any:
        """Each policy is checked against the values as they are about to be saved, not as they were."""
        form = super()._construct_form(i, **kwargs)
        form.instance.defaults = self.instance
        return form


class PolicyInline(TabularInline):
    """Its rows are the defaults', and so are the permissions."""

    model = Policy
    formset = PolicyFormSet
    fields = ("field", "kind", "reject", "low", "high")
    extra = 0

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        kwargs["widgets"] = {"field": SuggestingInput(policy_fields(obj))}
        return super().get_formset(request, obj, **kwargs)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(self.admin_site.get_model_admin(Defaults).has_view_permission(request, obj))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(self.admin_site.get_model_admin(Defaults).has_change_permission(request, obj))

    has_add_permission = has_delete_permission = has_change_permission


def policy_fields(row: Defaults | None) -> list[str]:
    """What to suggest: every field that can have a policy, and the leaves that the row sets."""
    kwargs = {} if row is None or row.chat_template_kwargs is None else row.chat_template_kwargs
    return list(dict.fromkeys((*BUILT_IN, *RANGED, TEMPLATE_KWARGS, *(f"{LEAF_PREFIX}{path}" for path, _ in flatten(kwargs)))))


@admin.register(Defaults, site=site)
class DefaultsAdmin(PreviewedAdmin):
    """In two steps, as what a field inherits depends on whose defaults they are: first for whom, then the values."""

    list_display = ("shown_scope", "tenant", "shown_values")
    list_filter = ("model",)
    list_select_related = ("tenant", "key")
    search_fields = ("model", "key__name", "tenant__name")
    inlines = (PolicyInline,)
    compressed_fields = False

    # The form

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[str | None, dict[str, Any]]]:
        whose = (None, {"fields": SCOPE, "description": "Leave model and key empty for everything that the tenant does."})
        if obj is None:
            return [whose]
        as_field = str if self.has_change_permission(request, obj) else in_words
        return [
            (None, {"fields": (SCOPE,)}),
            ("Flags", {"fields": in_threes([as_field(column) for column in FLAG_COLUMNS])}),
            ("Values", {"fields": in_threes([as_field(column) for column in VALUE_COLUMNS])}),
            ("Chat template", {"fields": (as_field(TEMPLATE_KWARGS),)}),
        ]

    def get_inlines(self, request: HttpRequest, obj: Any) -> tuple[Any, ...]:
        return () if obj is None else self.inlines

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Fields are called what the API calls them, and each says what it inherits."""
        texts = {} if obj is None else {column: escape(text) for column, text in inherited(obj).items()}
        kwargs = {**kwargs, "labels": dict(NAMES), "help_texts": texts}
        return super().get_form(request, obj, change=change, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        said = {name: kwargs[name] for name in ("label", "help_text") if name in kwargs}
        if db_field.name in FLAG_COLUMNS:
            return TriStateField(**said)
        if db_field.name in (COLUMNS["stop"], TEMPLATE_KWARGS):
            return InheritableJSONField(**said)
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        field.empty_label = "Every key" if db_field.name == "key" else field.empty_label
        return field

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        scope = () if obj is None else ("model", "key")
        return (*super().get_readonly_fields(request, obj), *scope)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:tenants_defaults_change", args=(obj.pk,), current_app=self.admin_site.name))

    # The list

    @display(description="Applies to", ordering="model")
    def shown_scope(self, row: Defaults) -> str:
        return str(row.key or row.model or "Every model")

    @display(description="Sets")
    def shown_values(self, row: Defaults) -> str:
        return ", ".join(f"{name} = {value}" for name, value in row.values().items()) or "nothing"
