"""Two tenants side by side: Alice owns Acme, where her colleagues have lesser roles; a stranger owns Globex."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tenants import services
from tenants.models import Defaults, Key, Member, Role, Tenant

PASSWORD = "a long enough phrase"


@dataclass(frozen=True)
class Side:
    """A tenant with one of everything."""

    tenant: Tenant
    people: dict[str, Member]
    key: Key
    key_text: str
    defaults: Defaults

    def client(self, role: str = Role.OWNER) -> Client:
        client = Client()
        client.force_login(self.people[role].user)
        return client


def make_side(name: str) -> Side:
    tenant = services.create_tenant(name=name, values={"temperature": 0.5})
    people = {
        role: services.add_member(tenant=tenant, username=f"{role}@{tenant.slug}.test", password=PASSWORD, role=role)
        for role in Role.values
    }
    key, text = services.create_key(tenant=tenant, name=f"key of {name}", created_by=people[Role.DEVELOPER])
    return Side(tenant, people, key, text, Defaults.objects.get(tenant=tenant))


@pytest.fixture(autouse=True)
def quick(settings: Any, tmp_path: Path) -> None:
    """Cheap password hashes, a home of its own, and no page but the admin."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.TOKENRY_HOME = tmp_path
    settings.ROOT_URLCONF = "tests.tenants.urls"
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "whitenoise" not in name]  # it looks all files up for each client


@pytest.fixture
def acme(db: None) -> Side:
    return make_side("Acme")


@pytest.fixture
def globex(db: None) -> Side:
    return make_side("Globex")


@pytest.fixture
def root(db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", "", PASSWORD))
    return client
