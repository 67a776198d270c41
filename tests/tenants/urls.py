"""The admin alone: these tests need nothing of the platform."""

from __future__ import annotations

from django.urls import path

from tenants.admin import site

urlpatterns = [path("admin/", site.urls)]
