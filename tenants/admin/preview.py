"""What the defaults page asks while somebody edits it, and the page of its changes, from which each can be taken back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from unfold.forms import PaginationInlineFormSet

from inference.errors import ApiError
from inference.resolve import Layer
from tenants import preview, revert
from tenants.admin.audited import actor_of
from tenants.admin.scoped import TenantScopedAdmin
from tenants.defaults import NAMES
from tenants.models import AuditEntry, Defaults

REQUEST = "preview-request"


class PreviewedAdmin(TenantScopedAdmin):
    """For the defaults alone: nothing is saved by a preview, and a change is taken back by another change."""

    change_form_template = "tenants/defaults_form.html"

    def get_urls(self) -> list[Any]:
        own = [
            path("<path:object_id>/preview/", self.admin_site.admin_view(self.preview_view), name="tenants_defaults_preview"),
            path("<path:object_id>/revert/", self.admin_site.admin_view(self.revert_view), name="tenants_defaults_revert"),
        ]
        return [*own, *super().get_urls()]

    # The preview

    def preview_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The form as it is now, unsaved, and with it a request: what comes of both."""
        row = self.get_object(request, object_id)
        if not self.has_view_permission(request, row) or request.method != "POST":
            raise Http404
        before = row.layer()
        after, faults = self.edited(request, row) if self.has_change_permission(request, row) else (before, {})
        body = request.POST.get(REQUEST, "").encode()
        layers = preview.stack(row, after, "")
        return JsonResponse({
            "faults": faults,
            "fields": preview.in_effect(layers, row.source),
            "differences": [asdict(difference) for difference in preview.differences(before, after)],
            "request": None if not body.strip() else self.becomes(row, after, body),
        })

    def edited(self, request: HttpRequest, row: Defaults) -> tuple[Layer, dict[str, list[str]]]:
        """The layer that the form describes, and what is wrong with the form; a field that is wrong stays as it was."""
        form = self.get_form(request, row, change=True)(request.POST, instance=row)
        form.is_valid()
        formsets, _ = self._create_formsets(request, row, change=True)
        for formset in formsets:
            formset.is_valid()
        faults = {NAMES.get(name, name): list(texts) for name, texts in form.errors.items()}
        policies = {policy.field: policy.rule() for formset in formsets for policy in kept(formset)}
        return Layer(row.source, row.values(), policies), faults

    def becomes(self, row: Defaults, layer: Layer, body: bytes) -> dict[str, Any]:
        try:
            layers = preview.stack(row, layer, preview.model_of(body))
            return {"outcomes": [asdict(outcome) for outcome in preview.outcomes(body, layers)]}
        except ApiError as refusal:
            return {"refused": refusal.message, "param": refusal.param}

    # The changes

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        row = self.get_object(request, object_id)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request), "title": f"Changes of {row}", "opts": self.opts,
            "changes": [(entry, revert.fields(entry)) for entry in revert.changes(row)],
            "may_revert": self.has_change_permission(request, row),
            "form_url": reverse("admin:tenants_defaults_change", args=(row.pk,)),
            "revert_url": reverse("admin:tenants_defaults_revert", args=(row.pk,)),
        }
        return TemplateResponse(request, "tenants/defaults_history.html", context)

    def revert_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.get_object(request, object_id)
        entry = next((entry for entry in revert.changes(row) if str(entry.pk) == request.POST.get("entry")), None)
        if request.method != "POST" or entry is None:
            raise Http404
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        self.take_back(request, row, entry)
        return HttpResponseRedirect(reverse("admin:tenants_defaults_change", args=(row.pk,)))

    def take_back(self, request: HttpRequest, row: Defaults, entry: AuditEntry) -> None:
        try:
            revert.revert(row=row, entry=entry, actor=actor_of(request))
        except ValidationError as fault:
            messages.error(request, f"It cannot be as it was: {' '.join(fault.messages)}")
            return
        self.log_change(request, row, f"Set back to before {entry.at:%Y-%m-%d %H:%M:%S}.")
        messages.success(request, f"Everything is as it was before {entry.at:%Y-%m-%d %H:%M:%S} UTC.")


def kept(formset: PaginationInlineFormSet) -> list[Any]:
    """The rows of an inline that would be there after saving, those with mistakes left out."""
    forms = [form for form in formset.forms if form.is_valid() and form.cleaned_data.get("field")]
    return [form.instance for form in forms if not form.cleaned_data.get("DELETE")]
