"""People on a running server: made by the project's own services, logged in as a browser does."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx

from tests.world import Server

PASSWORD = "a long enough phrase"
MAKE = """
import json
from django.contrib.auth import get_user_model
from tenants import services
from tenants.models import Tenant
for name, tenant, role in json.loads({people!r}):
    if tenant is None:
        get_user_model().objects.create_superuser(name, "", {password!r})
    else:
        services.add_member(tenant=Tenant.objects.get(name=tenant), username=name, password={password!r}, role=role)
"""


@dataclass(frozen=True)
class Person:
    """Somebody with a session. `data` and `send` are what a page's script would do."""

    name: str
    url: str

    @cached_property
    def http(self) -> httpx.Client:
        client = httpx.Client(base_url=self.url, timeout=60, follow_redirects=True)
        page = client.get("/admin/login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="(.+?)"', page)
        assert token, page
        form = {"username": self.name, "password": PASSWORD, "csrfmiddlewaretoken": token[1], "next": "/usage/"}
        answer = client.post("/admin/login/", data=form, headers={"Referer": f"{self.url}/admin/login/"})
        assert answer.url.path == "/usage/", answer.text
        return client

    def data(self, path: str, **query: Any) -> httpx.Response:
        return self.http.get(path, params=query)

    def send(self, path: str, body: Any) -> httpx.Response:
        return self.http.post(path, json=body, headers={"X-CSRFToken": self.http.cookies["csrftoken"]})


def make_people(server: Server, *people: tuple[str, str | None, str]) -> list[Person]:
    """(name, tenant's name, role) each; without a tenant a superuser."""
    server.manage("shell", "--no-imports", "-c", MAKE.format(people=json.dumps(people), password=PASSWORD))
    return [Person(name, server.url) for name, _, _ in people]
