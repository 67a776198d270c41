"""Writes: keyword-only, atomic, whole, and in the audit log. Models check themselves on save (ValidationError)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, cast

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from inference.errors import Unauthorized
from inference.leaves import overlay
from inference.resolve import TEMPLATE_KWARGS
from tenants import demo, keys
from tenants.audit import Actor, audited, system_actor
from tenants.callers import authenticate
from tenants.defaults import COLUMNS, check
from tenants.models import Defaults, Key, Member, Policy, Role, Tenant

P = ParamSpec("P")
T = TypeVar("T")
SERVER = system_actor("server")  # whoever runs it, where nobody is named


def atomic(write: Callable[P, T]) -> Callable[P, T]:
    """All of it or nothing. Django's own decorator, with the signature kept for the type checker."""
    return cast(Callable[P, T], transaction.atomic(write))


@atomic
def create_tenant(*, name: str, slug: str = "", values: Mapping[str, Any] | None = None, actor: Actor = SERVER) -> Tenant:
    """`values` are the tenant's defaults for every model, by the request's field names."""
    tenant = Tenant(name=name, slug=slug or slugify(name, allow_unicode=True))
    with audited(tenant, actor=actor):
        tenant.save()
    if values:
        set_defaults(tenant=tenant, values=values, actor=actor)
    return tenant


@atomic
def create_key(
    *,
    tenant: Tenant,
    name: str,
    scopes: Iterable[str] = keys.DEFAULT_SCOPES,
    allowed_models: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    created_by: Member | None = None,
    actor: Actor = SERVER,
) -> tuple[Key, str]:
    """The key and its text, which is not kept anywhere."""
    key = Key(tenant=tenant, name=name, scopes=list(scopes), expires_at=expires_at, created_by=created_by)
    key.allowed_models = None if allowed_models is None else list(allowed_models)
    return key, issue(key=key, actor=actor)


def issue(*, key: Key, actor: Actor = SERVER) -> str:
    """Give a new key its secret and save it. Returns the key's text."""
    secret = keys.mint()
    key.public_id = secret.public_id
    key.last_four = secret.last_four
    key.pepper_version = keys.newest(settings.KEY_PEPPERS)
    key.digest = keys.digest(secret.value, settings.KEY_PEPPERS, key.pepper_version)
    with audited(key, actor=actor):
        key.save()
    return secret.text


def revoke_key(*, key: Key, actor: Actor = SERVER) -> None:
    """For good. A second revocation keeps the time of the first."""
    if key.revoked_at is None:
        with audited(key, actor=actor):
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])


@atomic
def set_defaults(
    *, tenant: Tenant, values: Mapping[str, Any], model: str = "", key: Key | None = None, actor: Actor = SERVER
) -> Defaults:
    """Set the named fields of one layer and leave the others. None inherits again; chat_template_kwargs are laid leaf on leaf.

    Raises:
        BadRequest: no such field, or a value that it does not take.
    """
    row = Defaults.objects.filter(tenant=tenant, model=model, key=key).first() or Defaults(tenant=tenant, model=model, key=key)
    for name, value in values.items():
        if value is not None or name not in COLUMNS:
            check(name, value)
        if name == TEMPLATE_KWARGS and value is not None:
            value = merged(row.chat_template_kwargs, value)
        setattr(row, COLUMNS[name], value)
    with audited(row, actor=actor):
        row.save()
    return row


def merged(base: dict[str, Any] | None, over: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    overlay(tree, {} if base is None else base)
    overlay(tree, over)
    return tree


@atomic
def set_policy(
    *, defaults: Defaults, field: str, kind: str, reject: bool = False, low: int | None = None, high: int | None = None,
    actor: Actor = SERVER,
) -> Policy:
    policy = Policy.objects.filter(defaults=defaults, field=field).first() or Policy(defaults=defaults, field=field)
    policy.kind, policy.reject, policy.low, policy.high = kind, reject, low, high
    with audited(policy, actor=actor):
        policy.save()
    return policy


def new_user(*, username: str, password: str, email: str = "") -> Any:
    """A user who may log in to the admin, checked and not saved yet. Raises ValidationError by field."""
    user = get_user_model()(username=username, email=email, is_staff=True)
    user.set_password(password)
    user.full_clean()
    try:
        validate_password(password, user)
    except ValidationError as fault:
        raise ValidationError({"password": fault.messages}) from None
    return user


def add_member(
    *, tenant: Tenant, username: str, password: str, role: str = Role.DEVELOPER, email: str = "", actor: Actor = SERVER
) -> Member:
    """A new user with a place in the tenant, whose role says what it may see and do in the admin."""
    user = new_user(username=username, password=password, email=email)
    return place(member=Member(tenant=tenant, user=user, role=role), actor=actor)


@atomic
def place(*, member: Member, actor: Actor = SERVER) -> Member:
    """Save a new member, its user with it: without `is_staff` it could not log in."""
    with audited(member.user, actor=actor):
        member.user.is_staff = True
        member.user.save()
    member.user_id = member.user.pk
    with audited(member, actor=actor):
        member.save()
    return member


def ensure_demo() -> demo.Demo:
    """Make the demo tenant, for a first try without set-up, where there is none of that name; else tell what was kept of it."""
    if not Tenant.objects.filter(slug=demo.TENANT).exists():
        return make_demo()
    kept = demo.read(settings.TOKENRY_HOME)
    admin = get_user_model().objects.filter(username=kept.username).first()
    if kept.password is not None and not (admin and admin.check_password(kept.password)):
        kept = replace(kept, password=None)
    return kept if works(kept.key) else replace(kept, key=None)


@atomic
def make_demo() -> demo.Demo:
    """One tenant with one key, owned by the superuser `admin`; one who was there before keeps the password."""
    tenant = create_tenant(name=demo.TENANT)
    _, key = create_key(tenant=tenant, name="first key")
    users, password = get_user_model().objects, None
    admin = users.filter(username=demo.USERNAME).first()
    if admin is None:
        password = secrets.token_urlsafe(12)
        admin = users.create_superuser(demo.USERNAME, "", password)
    place(member=Member(tenant=tenant, user=admin, role=Role.OWNER))
    made = demo.Demo(key=key, password=password)
    demo.write(settings.TOKENRY_HOME, made)
    return made


def works(key: str | None) -> bool:
    try:
        authenticate(key)
    except Unauthorized:
        return False
    return True
