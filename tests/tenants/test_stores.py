"""The stores that the other tests stand on: both kinds start, hold what was committed, and let each test begin with nothing."""

from __future__ import annotations

import threading

import redis
from django.db import connection, connections

from tenants import services
from tenants.models import Tenant
from tests.stores import Postgres, Valkey


def test_a_commit_is_seen_by_other_threads(database: str) -> None:
    services.create_tenant(name="Acme")
    seen: list[int] = []

    def look() -> None:
        seen.append(Tenant.objects.count())
        connections.close_all()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [1]


def test_each_test_begins_with_an_empty_database(database: str) -> None:
    assert Tenant.objects.count() == 0
    assert database.startswith(connection.vendor[:8])


def test_postgresql_comes_back_with_what_it_had(postgres: Postgres) -> None:
    postgres.run("CREATE TABLE kept (n int)")
    postgres.kill()
    postgres.start()
    postgres.run("DROP TABLE kept")


def test_valkey_answers_and_forgets(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.set("a", "b")
        valkey.restart()
        assert client.get("a") is None
