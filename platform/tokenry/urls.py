"""Plain Django's part of the public surface; the rest is in tokenry.asgi."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

from tenants.admin import site
from tokenry.api import health
from tokenry.api.capabilities import CapabilitiesView
from tokenry.api.defaults import DefaultsView
from tokenry.api.derender import ChatDerenderView, CompletionDerenderView
from tokenry.api.keys import KeyRotateView, KeysView, KeyView
from tokenry.api.later import MessagesRenderView, ResponsesRenderView
from tokenry.api.models import ModelsView, ModelView
from tokenry.api.render import ChatRenderView, CompletionRenderView
from tokenry.api.tickets import TicketsView
from tokenry.api.tokenize import DetokenizeView, TokenizeView
from tokenry.api.usage import UsageExportView, UsageRequestsView, UsageView
from tokenry.web.playground import DefaultsData, PlaygroundPage, TicketData, TokensData
from tokenry.web.usage import UsageExport, UsagePage

urlpatterns = [
    path("v1/chat/completions/render", ChatRenderView.as_view()),
    path("v1/chat/completions/derender", ChatDerenderView.as_view()),
    path("v1/completions/render", CompletionRenderView.as_view()),
    path("v1/completions/derender", CompletionDerenderView.as_view()),
    path("v1/scale_out/capabilities", CapabilitiesView.as_view()),
    path("v1/responses/render", ResponsesRenderView.as_view()),
    path("v1/messages/render", MessagesRenderView.as_view()),
    path("tokenize", TokenizeView.as_view()),
    path("detokenize", DetokenizeView.as_view()),
    path("v1/models", ModelsView.as_view()),
    path("v1/models/<path:name>", ModelView.as_view()),
    path("v1/defaults", DefaultsView.as_view()),
    path("v1/tickets", TicketsView.as_view()),
    path("v1/keys", KeysView.as_view()),
    path("v1/keys/<str:public_id>", KeyView.as_view()),
    path("v1/keys/<str:public_id>/rotate", KeyRotateView.as_view()),
    path("v1/usage", UsageView.as_view()),
    path("v1/usage/requests", UsageRequestsView.as_view()),
    path("v1/usage/export", UsageExportView.as_view()),
    path("healthz", health.healthz),
    path("health", health.health),
    path("ping", health.health),
    path("version", health.version),
    path("readyz", health.readyz),
    path("metrics", health.metrics),
    path("schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerView.as_view(url_name="schema")),
    path("playground/", PlaygroundPage.as_view(), name="playground"),
    path("playground/ticket", TicketData.as_view(), name="playground-ticket"),
    path("playground/defaults", DefaultsData.as_view(), name="playground-defaults"),
    path("playground/tokens", TokensData.as_view(), name="playground-tokens"),
    path("usage/", UsagePage.as_view(), name="usage"),
    path("usage/export", UsageExport.as_view(), name="usage-export"),
    path("admin/", site.urls),
    path("", RedirectView.as_view(url="/admin/")),
]
handler400 = "tokenry.errors.bad_request"
handler403 = "tokenry.errors.permission_denied"
handler404 = "tokenry.errors.page_not_found"
handler500 = "tokenry.errors.server_error"
