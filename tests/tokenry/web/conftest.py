"""The people of Alice's and Bob's tenants, and one who runs the platform."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.conftest import Scene
from tests.people import Person, make_people


@dataclass(frozen=True)
class People:
    root: Person
    developer: Person  # Alice's
    viewer: Person  # Alice's
    stranger: Person  # Bob's owner


@pytest.fixture(scope="session")
def people(scripted: Scene) -> People:
    those = [("root", None, ""), ("developer", "Alice", "developer"), ("viewer", "Alice", "viewer"), ("stranger", "Bob", "owner")]
    return People(*make_people(scripted.platform, *those))
