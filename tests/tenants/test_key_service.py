"""Keys made, rotated and revoked by a key: what works when, what is said again, and what the audit log keeps of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from inference.errors import BadRequest, Conflict, NotFound, PermissionDenied, Unauthorized
from tenants import key_service, services
from tenants.caller import Caller
from tenants.callers import authenticate
from tenants.models import AuditEntry, IdempotentCall, Key, RetiredSecret
from tests.tenants.ledger_world import make_customer


@pytest.fixture
def caller(database: str) -> Caller:
    return make_customer("Acme").caller


@pytest.fixture
def stranger(database: str) -> Caller:
    return make_customer("Globex").caller


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Call it to move the time on."""
    real = timezone.now
    passed = timedelta(0)

    def move(by: timedelta) -> None:
        nonlocal passed
        passed += by

    monkeypatch.setattr(timezone, "now", lambda: real() + passed)
    return move


def works(text: str) -> bool:
    try:
        authenticate(text)
    except Unauthorized:
        return False
    return True


def test_a_new_key_works_and_has_what_was_asked_for(caller: Caller) -> None:
    made = key_service.create_key(
        caller=caller, name="ci", scopes=["inference"], allowed_models=[], limits={"requests_per_minute": 5, "cost_per_day": "1.5"})
    new = authenticate(made.text)
    assert (new.tenant_id, new.scopes, new.models) == (caller.tenant_id, {"inference"}, frozenset())
    assert (new.key_bounds.requests_per_minute, new.key_bounds.cost_per_day) == (5, 1_500_000_000)
    assert made.text not in repr(made)


@pytest.mark.parametrize(("field", "given"), [
    ("name", {"name": ""}), ("scopes", {"scopes": ["everything"]}), ("scopes", {"scopes": []}),
    ("allowed_models", {"allowed_models": "m"}), ("limits.requests_per_minute", {"limits": {"requests_per_minute": 0}}),
    ("limits.speed", {"limits": {"speed": 1}}), ("expires_at", {"expires_at": timezone.now() - timedelta(days=1)}),
    ("Idempotency-Key", {"idempotency_key": ""}),
])
def test_what_cannot_be_is_refused_by_name_and_leaves_nothing(caller: Caller, field: str, given: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        key_service.create_key(caller=caller, **({"name": "k"} | given))
    assert caught.value.param == field
    assert Key.objects.count() == 1


def test_repeated_with_its_idempotency_key_a_call_says_the_same_again(caller: Caller, later: Any) -> None:
    first, again = (key_service.create_key(caller=caller, name="k", idempotency_key="i-1") for _ in range(2))
    assert first == again
    assert works(again.text)
    with pytest.raises(Conflict):
        key_service.create_key(caller=caller, name="other", idempotency_key="i-1")
    assert key_service.create_key(caller=caller, name="k", idempotency_key="i-2").key != first.key
    assert key_service.create_key(caller=caller, name="k").key != first.key
    later(timedelta(days=2))
    assert key_service.create_key(caller=caller, name="k", idempotency_key="i-1").key != first.key
    assert IdempotentCall.objects.count() == 1


def test_idempotency_keys_are_the_callers_own(caller: Caller, stranger: Caller) -> None:
    mine = key_service.create_key(caller=caller, name="k", idempotency_key="i")
    assert key_service.create_key(caller=stranger, name="k", idempotency_key="i").text != mine.text


def test_the_same_call_ten_times_at_once_makes_one_key(caller: Caller) -> None:
    def create(_: int) -> str:
        try:
            return key_service.create_key(caller=caller, name="k", idempotency_key="i").text
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as threads:
        texts = list(threads.map(create, range(10)))
    assert len(set(texts)) == 1
    assert Key.objects.count() == 2


def test_rotation_with_grace_lets_both_secrets_work_until_it_ends(caller: Caller, later: Any) -> None:
    old = key_service.create_key(caller=caller, name="k")
    new = key_service.rotate_key(caller=caller, public_id=old.key.public_id, grace=timedelta(hours=1))
    assert new.key.public_id == old.key.public_id
    assert (works(old.text), works(new.text)) == (True, True)
    later(timedelta(minutes=59))
    assert works(old.text)
    later(timedelta(minutes=2))
    assert (works(old.text), works(new.text)) == (False, True)


def test_rotation_without_grace_ends_the_old_secret_at_once(caller: Caller) -> None:
    old = key_service.create_key(caller=caller, name="k")
    middle = key_service.rotate_key(caller=caller, public_id=old.key.public_id, grace=timedelta(hours=1))
    new = key_service.rotate_key(caller=caller, public_id=old.key.public_id)
    assert [works(issued.text) for issued in (old, middle, new)] == [False, False, True]
    assert not RetiredSecret.objects.exists()


def test_rotation_is_idempotent(caller: Caller) -> None:
    key = key_service.create_key(caller=caller, name="k").key
    first, again = (
        key_service.rotate_key(caller=caller, public_id=key.public_id, grace=timedelta(hours=1), idempotency_key="r") for _ in range(2)
    )
    assert first.text == again.text
    assert works(first.text)


def test_revocation_ends_both_secrets(caller: Caller) -> None:
    old = key_service.create_key(caller=caller, name="k")
    new = key_service.rotate_key(caller=caller, public_id=old.key.public_id, grace=timedelta(hours=1))
    revoked = key_service.revoke_key(caller=caller, public_id=old.key.public_id)
    assert (works(old.text), works(new.text)) == (False, False)
    assert key_service.revoke_key(caller=caller, public_id=old.key.public_id).revoked_at == revoked.revoked_at
    with pytest.raises(Conflict):
        key_service.rotate_key(caller=caller, public_id=old.key.public_id)


@pytest.mark.parametrize("grace", [timedelta(seconds=-1), timedelta(days=31)])
def test_grace_has_its_range(caller: Caller, grace: timedelta) -> None:
    with pytest.raises(BadRequest) as caught:
        key_service.rotate_key(caller=caller, public_id=caller.key_id, grace=grace)
    assert caught.value.param == "grace_seconds"


def test_another_tenants_key_does_not_exist(caller: Caller, stranger: Caller) -> None:
    for call in (key_service.find_key, key_service.rotate_key, key_service.revoke_key):
        with pytest.raises(NotFound):
            call(caller=caller, public_id=stranger.key_id)
    assert [key.public_id for key in key_service.list_keys(caller=caller).rows] == [caller.key_id]
    with pytest.raises(NotFound):
        key_service.list_keys(caller=caller, after=stranger.key_id)


def test_lists_page_by_page_newest_first(caller: Caller) -> None:
    made = [key_service.create_key(caller=caller, name=str(n)).key.public_id for n in range(5)]
    first = key_service.list_keys(caller=caller, limit=3)
    rest = key_service.list_keys(caller=caller, limit=3, after=first.after)
    assert [key.public_id for key in (*first.rows, *rest.rows)] == [*reversed(made), caller.key_id]
    assert rest.after is None


def test_a_key_made_by_a_members_key_stops_with_the_member(database: str) -> None:
    tenant = services.create_tenant(name="Acme")
    member = services.add_member(tenant=tenant, username="dev", password="a long enough phrase")
    _, text = services.create_key(tenant=tenant, name="own", created_by=member)
    made = key_service.create_key(caller=authenticate(text), name="made")
    assert works(made.text)
    member.active = False
    member.save()
    assert not works(made.text)


def test_all_of_it_is_in_the_audit_log_and_no_secret_is(caller: Caller) -> None:
    old = key_service.create_key(caller=caller, name="k", limits={"concurrency": 2}, source="api 10.0.0.1")
    new = key_service.rotate_key(caller=caller, public_id=old.key.public_id, grace=timedelta(hours=1))
    key_service.revoke_key(caller=caller, public_id=old.key.public_id)
    log = list(AuditEntry.objects.exclude(actor="system").order_by("id"))
    assert [(entry.object_type, entry.action) for entry in log] == [
        ("key", "created"), ("limit", "created"), ("key", "changed"), ("key", "changed")]
    assert {(entry.actor, entry.tenant_id) for entry in log} == {(f"key:{caller.key_id}", int(caller.tenant_id))}
    assert log[0].source == "api 10.0.0.1"
    assert set(log[2].after) == {"digest", "last_four"}
    assert log[2].before["digest"] != log[2].after["digest"]
    assert set(log[3].after) == {"revoked_at"}
    kept = json.dumps([[entry.before, entry.after] for entry in log])
    for issued in (old, new):
        assert issued.text not in kept
        assert issued.text.rsplit("_", 1)[1] not in kept
        assert bytes(issued.key.digest).hex() not in kept


SOON = timezone.now() + timedelta(hours=1)
NARROW: dict[str, Any] = {"scopes": ["inference", "keys:manage"], "allowed_models": ["m", "n"], "expires_at": SOON}
WITHIN = {"scopes": ["inference"], "allowed_models": ["m"], "expires_at": SOON}
BEYOND = [
    ("scopes", {"scopes": ["inference", "usage:read"]}), ("allowed_models", {"allowed_models": ["m", "other"]}),
    ("allowed_models", {"allowed_models": None}), ("expires_at", {"expires_at": None}),
    ("expires_at", {"expires_at": SOON + timedelta(seconds=1)}),
]


@pytest.fixture
def narrow(caller: Caller) -> Caller:
    """A key of the caller's tenant that may manage keys, and otherwise little."""
    _, text = services.create_key(tenant=Key.objects.get(public_id=caller.key_id).tenant, name="narrow", **NARROW)
    return authenticate(text)


@pytest.mark.parametrize(("field", "given"), BEYOND)
def test_no_key_makes_one_that_may_do_more(caller: Caller, narrow: Caller, field: str, given: dict[str, Any]) -> None:
    with pytest.raises(PermissionDenied) as caught:
        key_service.create_key(caller=narrow, name="k", **(WITHIN | given))
    assert caught.value.param == field
    assert Key.objects.count() == 2


@pytest.mark.parametrize(("field", "given"), BEYOND)
def test_no_key_gets_the_text_of_one_that_may_do_more(caller: Caller, narrow: Caller, field: str, given: dict[str, Any]) -> None:
    _, wider = services.create_key(tenant=Key.objects.get(public_id=caller.key_id).tenant, name="wider", **(WITHIN | given))
    with pytest.raises(PermissionDenied) as caught:
        key_service.rotate_key(caller=narrow, public_id=wider.split("_")[1])
    assert caught.value.param == field
    assert works(wider)


def test_a_key_makes_others_like_itself(narrow: Caller) -> None:
    for given in (NARROW, WITHIN, WITHIN | {"allowed_models": []}):
        made = key_service.create_key(caller=narrow, name="k", **given)
        assert works(key_service.rotate_key(caller=narrow, public_id=made.key.public_id).text)
    assert works(key_service.rotate_key(caller=narrow, public_id=narrow.key_id).text)
