"""The admin site of the platform: what is registered here is all that it shows."""

from __future__ import annotations

from typing import Any

from unfold.sites import UnfoldAdminSite


class TokenryAdminSite(UnfoldAdminSite):
    index_title = "Overview"

    def get_urls(self) -> list[Any]:
        """Without Django's "view on site", which looks any row of any table up, whoever asks."""
        return [pattern for pattern in super().get_urls() if getattr(pattern, "name", None) != "view_on_site"]


site = TokenryAdminSite()
