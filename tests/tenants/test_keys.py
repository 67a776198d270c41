from __future__ import annotations

import pytest

from tenants import keys

PEPPERS = {1: b"old pepper", 2: b"new pepper"}


def test_a_key_is_taken_apart_as_it_was_put_together() -> None:
    secret = keys.mint()
    assert keys.shaped(secret.text)
    assert keys.split(secret.text) == (secret.public_id, secret.value)
    assert secret.text.endswith(secret.last_four)


def test_the_secret_has_256_bits_and_no_two_are_alike() -> None:
    made = [keys.mint() for _ in range(50)]
    assert all(len(bytes.fromhex(secret.value)) == 32 for secret in made)
    assert len({secret.value for secret in made} | {secret.public_id for secret in made}) == 100


def test_the_secret_is_not_in_the_repr() -> None:
    secret = keys.mint()
    assert secret.value not in repr(secret)


GOOD = f"tk_{'a' * 16}_{'b' * 64}"


NO_KEYS = [None, "", "tk_", "sk-123", "tk__" + "b" * 64, GOOD.replace("b", "é"), GOOD.upper()]
NO_KEYS += [GOOD[:-1], GOOD + "0", GOOD + "\n", " " + GOOD]


@pytest.mark.parametrize("token", NO_KEYS)
def test_what_is_no_key_is_nobody(token: str | None) -> None:
    assert not keys.shaped(token)
    assert keys.split(token) == keys.NOBODY


def test_a_digest_matches_its_own_secret_under_its_own_pepper_alone() -> None:
    secret, other = keys.mint().value, keys.mint().value
    stored = keys.digest(secret, PEPPERS, 1)
    assert keys.matches(secret, stored, PEPPERS, 1)
    assert not keys.matches(other, stored, PEPPERS, 1)
    assert not keys.matches(secret, stored, PEPPERS, 2)
    assert not keys.matches(secret, stored, {1: b"another", 2: b"new pepper"}, 1)


def test_a_pepper_that_is_gone_matches_nothing() -> None:
    secret = keys.mint().value
    stored = keys.digest(secret, PEPPERS, 1)
    assert not keys.matches(secret, stored, {2: PEPPERS[2]}, 1)


def test_nothing_matches_where_nothing_is_stored() -> None:
    assert not keys.matches("", None, PEPPERS, None)
    assert not keys.matches(keys.mint().value, None, PEPPERS, None)


def test_new_keys_use_the_newest_pepper() -> None:
    assert keys.newest(PEPPERS) == 2
