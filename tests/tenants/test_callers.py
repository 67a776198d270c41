"""From a token to a caller: what it carries, and the one answer to everything that is wrong."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from inference.errors import ScopeMissing, Unauthorized
from inference.resolve import resolve
from tenants import callers, key_service, keys, services
from tenants.callers import acaller, authenticate, caller
from tenants.models import Role
from tests.tenants.conftest import Side


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    callers.shared.cache_clear()


def test_a_caller_carries_what_a_request_needs(acme: Side) -> None:
    who = authenticate(acme.key_text)
    assert (who.tenant, who.tenant_id, who.key_id) == ("acme", str(acme.tenant.pk), acme.key.public_id)
    assert who.scopes == {"inference", "usage:read"}
    assert (who.models, who.weight, who.expires_at) == (None, 1.0, None)


def test_scopes(acme: Side) -> None:
    who = authenticate(acme.key_text)
    who.require("inference")
    with pytest.raises(ScopeMissing):
        who.require("keys:manage")


@pytest.mark.parametrize(
    ("of_tenant", "of_key", "allowed"),
    [
        (None, None, None),
        (["a", "b"], None, {"a", "b"}),
        (None, ["a"], {"a"}),
        (["a", "b"], ["b", "c"], {"b"}),
        (["a"], [], set()),
        ([], None, set()),
    ],
)
def test_the_models_are_those_that_tenant_and_key_allow(acme: Side, of_tenant: Any, of_key: Any, allowed: set[str] | None) -> None:
    acme.tenant.allowed_models, acme.key.allowed_models = of_tenant, of_key
    acme.tenant.save()
    acme.key.save()
    who = authenticate(acme.key_text)
    assert who.models == allowed
    assert [who.may_use(model) for model in "abc"] == [allowed is None or model in allowed for model in "abc"]


def test_layers_come_from_the_key_the_model_and_the_tenant_in_this_order(acme: Side, globex: Side) -> None:
    services.set_defaults(tenant=acme.tenant, model="m", values={"temperature": 0.2, "top_p": 0.2})
    services.set_defaults(tenant=acme.tenant, key=acme.key, values={"temperature": 0.1})
    services.set_defaults(tenant=acme.tenant, model="other", values={"temperature": 0.9})
    other_key, _ = services.create_key(tenant=acme.tenant, name="other")
    services.set_defaults(tenant=acme.tenant, key=other_key, values={"temperature": 0.8})
    services.set_defaults(tenant=globex.tenant, model="m", values={"seed": 7})
    who = authenticate(acme.key_text)
    assert [layer.source for layer in who.layers("m")] == ["key", "tenant_model", "tenant"]
    assert [layer.source for layer in who.layers("unknown")] == ["key", "tenant"]
    effective = resolve({}, who.layers("m"))
    assert (effective["temperature"], effective["top_p"], effective["seed"]) == (0.1, 0.2, None)


def test_policies_are_in_the_layers(acme: Side) -> None:
    services.set_policy(defaults=acme.defaults, field="temperature", kind="enforced")
    effective = resolve({"temperature": 1.5}, authenticate(acme.key_text).layers("m"))
    assert (effective["temperature"], effective.sources["temperature"]) == (0.5, "tenant")


# Refusals


def expire(side: Side) -> None:
    side.key.expires_at = timezone.now() - timedelta(seconds=1)
    side.key.save()


def revoke(side: Side) -> None:
    services.revoke_key(key=side.key)


def stop_tenant(side: Side) -> None:
    side.tenant.active = False
    side.tenant.save()


def stop_maker(side: Side) -> None:
    side.people[Role.DEVELOPER].active = False
    side.people[Role.DEVELOPER].save()


def stop_makers_login(side: Side) -> None:
    side.people[Role.DEVELOPER].user.is_active = False
    side.people[Role.DEVELOPER].user.save()


def delete(side: Side) -> None:
    side.key.delete()


def forget_pepper(side: Side) -> None:
    type(side.key).objects.filter(pk=side.key.pk).update(pepper_version=99)


ENDINGS = [expire, revoke, stop_tenant, stop_maker, stop_makers_login, delete, forget_pepper]


def refusal(token: str | None) -> tuple[Any, ...]:
    with pytest.raises(Unauthorized) as refused:
        authenticate(token)
    return refused.value.status, refused.value.body(), refused.value.headers


@pytest.fixture
def hmacs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The peppers under which an HMAC was made."""
    made: list[bytes] = []
    real = hmac.digest
    monkeypatch.setattr(hmac, "digest", lambda pepper, *rest: (made.append(pepper), real(pepper, *rest))[1])
    return made


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_dead_key_gets_the_same_answer_for_the_same_work(acme: Side, ending: Callable[[Side], None], hmacs: list[bytes]) -> None:
    unknown = refusal(keys.mint().text)
    hmacs.clear()
    ending(acme)
    assert refusal(acme.key_text) == unknown
    assert len(hmacs) == 1


@pytest.mark.parametrize("token", [None, "", "Bearer x", keys.mint().text])
def test_what_is_not_a_key_too(acme: Side, token: str | None, hmacs: list[bytes]) -> None:
    wrong_secret = f"tk_{acme.key.public_id}_{'0' * 64}"
    assert refusal(token) == refusal(wrong_secret)
    assert len(hmacs) == 2


def test_a_members_place_in_another_tenant_says_nothing_of_this_key(acme: Side, globex: Side) -> None:
    globex.people[Role.DEVELOPER].active = False
    globex.people[Role.DEVELOPER].save()
    assert authenticate(acme.key_text).tenant == "acme"


# Through the cache


def test_a_known_key_asks_the_database_once(acme: Side) -> None:
    with CaptureQueriesContext(connection) as first:
        caller(acme.key_text)
    with CaptureQueriesContext(connection) as later:
        for _ in range(10):
            assert caller(acme.key_text).tenant == "acme"
    assert (len(first) <= 4, len(later)) == (True, 0)


@pytest.fixture
def at_once() -> None:
    """No time passes for the cache."""
    callers.shared().clock = lambda: 0.0


def test_the_secret_is_compared_on_a_cached_key_too(acme: Side, at_once: None, hmacs: list[bytes]) -> None:
    caller(acme.key_text)
    with pytest.raises(Unauthorized):
        caller(f"tk_{acme.key.public_id}_{'0' * 64}")
    assert len(hmacs) == 3, "once for the first call, and twice for the one that is refused"


def test_a_new_secret_works_at_once_though_the_old_one_is_cached(acme: Side) -> None:
    now = 0.0
    callers.shared().clock = lambda: now
    own = caller(acme.key_text)
    rotated = key_service.rotate_key(caller=own, public_id=own.key_id).text
    now = callers.DOUBT_SECONDS
    assert caller(rotated) == own
    with pytest.raises(Unauthorized):
        caller(acme.key_text)


def test_the_expiry_is_looked_at_on_a_cached_key_too(acme: Side, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    acme.key.expires_at = timezone.now() + timedelta(hours=1)
    acme.key.save()
    caller(acme.key_text)
    monkeypatch.setattr(timezone, "now", lambda real=timezone.now: real() + timedelta(hours=2))
    with CaptureQueriesContext(connection) as queries, pytest.raises(Unauthorized):
        caller(acme.key_text)
    assert len(queries) == 0


@pytest.mark.parametrize("ending", [revoke, stop_tenant, stop_maker, stop_makers_login, delete])
def test_an_ending_holds_when_the_cached_entry_is_too_old(acme: Side, ending: Callable[[Side], None]) -> None:
    now = 0.0
    cache = callers.shared()
    cache.clock = lambda: now
    caller(acme.key_text)
    ending(acme)
    now = cache.seconds
    assert now <= 0.5
    with pytest.raises(Unauthorized):
        caller(acme.key_text)


def test_what_is_no_key_asks_nobody(db: None) -> None:
    with CaptureQueriesContext(connection) as queries, pytest.raises(Unauthorized):
        caller("nonsense")
    assert len(queries) == 0


@pytest.mark.django_db(transaction=True)
def test_the_event_loop_gets_the_same_caller_and_no_connection_stays(acme: Side) -> None:
    async def ask() -> None:
        found = await asyncio.gather(*(acaller(acme.key_text) for _ in range(20)))
        assert {who.tenant for who in found} == {"acme"}
        with pytest.raises(Unauthorized):
            await acaller(keys.mint().text)
        assert connections["default"].connection is None, "the loop's own thread asked the database"

    connections.close_all()
    asyncio.run(ask())
