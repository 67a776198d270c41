"""Usage, to be looked at."""

from __future__ import annotations

from tokenry.web.views import Page


class UsagePage(Page):
    name = "usage"
    template_name = "web/usage.html"
