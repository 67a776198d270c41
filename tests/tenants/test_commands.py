"""create_tenant and create_key, as `spec` says: a key shown once, a refusal as a sentence."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tenants.callers import authenticate
from tenants.models import Defaults, Key, Tenant


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def made(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_a_tenant_and_its_key(db: None) -> None:
    shown = made("create_tenant", "Acme Rockets")
    tenant = Tenant.objects.get()
    assert shown == {"tenant": {"id": str(tenant.pk), "name": "Acme Rockets", "slug": "acme-rockets"}, "key": shown["key"]}
    assert authenticate(shown["key"]).tenant == "acme-rockets"
    assert Key.objects.count() == 1


def test_in_words(db: None) -> None:
    words = run("create_tenant", "Acme")
    assert authenticate(next(word for word in words.split() if word.startswith("tk_"))).tenant == "acme"


def test_defaults(db: None) -> None:
    given = ("return_tokens_as_token_ids=true", "temperature=0", "stop=###", "chat_template_kwargs.a.b=false", "chat_template_kwargs.a.c=1")
    made("create_tenant", "Acme", *(part for default in given for part in ("--default", default)))
    assert Defaults.objects.get().values() == {
        "return_tokens_as_token_ids": True,
        "temperature": 0.0,
        "stop": ["###"],
        "chat_template_kwargs": {"a": {"b": False, "c": 1}},
    }


@pytest.mark.parametrize("default", ["temperature=hot", "temperature=9", "temperature", "nonsense=1", "chat_template_kwargs.a=False"])
def test_a_bad_default_is_a_sentence_and_nothing_is_made(db: None, default: str) -> None:
    with pytest.raises(CommandError, match=rf"^{default.partition('=')[0]} .+\.$") as refused:
        run("create_tenant", "Acme", "--default", "top_k=1", "--default", default)
    assert refused.value.returncode == 1
    assert not Tenant.objects.exists()


def test_a_name_that_is_taken(db: None) -> None:
    run("create_tenant", "Acme")
    with pytest.raises(CommandError, match="There is a tenant of this name already"):
        run("create_tenant", "acme")


@pytest.mark.parametrize("name", ["Acme Rockets", "acme-rockets"])
def test_another_key_by_name_or_slug(db: None, name: str) -> None:
    first = made("create_tenant", "Acme Rockets")["key"]
    shown = made("create_key", name)
    assert shown["tenant"]["slug"] == "acme-rockets"
    assert authenticate(shown["key"]).scopes == {"inference", "usage:read"}
    assert authenticate(first).key_id != authenticate(shown["key"]).key_id


@pytest.mark.parametrize("flags", ["--scope inference --scope keys:manage", "--scope inference keys:manage inference"])
def test_scopes(db: None, flags: str) -> None:
    run("create_tenant", "Acme")
    assert authenticate(made("create_key", "acme", *flags.split())["key"]).scopes == {"inference", "keys:manage"}


@pytest.mark.parametrize(("arguments", "words"), [(("nobody",), "There is no tenant 'nobody'"), (("acme", "--scope", "root"), "scopes")])
def test_a_bad_key_is_a_sentence_and_none_is_made(db: None, arguments: tuple[str, ...], words: str) -> None:
    run("create_tenant", "Acme")
    with pytest.raises(CommandError, match=words):
        run("create_key", *arguments)
    assert Key.objects.count() == 1
