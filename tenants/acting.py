"""A person who acts as one of a tenant's keys, in the playground: what the key may do, without its secret.

What is used that way is the key's use: its limits hold, and it stands in the ledger under the key.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from inference.errors import NotFound, PermissionDenied
from tenants import keys, selectors
from tenants.caller import Caller
from tenants.models import Key, Role, Tenant

GENERATING = frozenset({Role.OWNER, Role.ADMIN, Role.DEVELOPER})
VIEWERS_LOOK = "A viewer cannot generate. Ask an owner or admin of the tenant to make you a developer."


@dataclass(frozen=True)
class Stage:
    """A tenant in which somebody may look around, and the keys to act as; those who may not generate have none."""

    tenant: Tenant
    may_generate: bool
    keys: list[Key]


def stages(user: Any) -> list[Stage]:
    """Of all tenants that the user sees, by name. Two queries, however many tenants."""
    roles = roles_by_tenant(user)
    tenants = list(Tenant.objects.filter(pk__in=roles))
    by_tenant: dict[int, list[Key]] = defaultdict(list)
    for key in usable_keys().filter(tenant__in=[tenant for tenant in tenants if roles[tenant.pk] in GENERATING]).order_by("created"):
        if keys.INFERENCE in key.scopes:
            by_tenant[key.tenant_id].append(key)
    return [Stage(tenant, roles[tenant.pk] in GENERATING, by_tenant[tenant.pk]) for tenant in tenants]


def acting_caller(*, user: Any, key_id: str) -> Caller:
    """The caller of a key of one of the user's tenants.

    Raises:
        NotFound: no such key, another tenant's, or not usable today: one and the same answer.
        PermissionDenied: the user's role in the tenant only looks.
        ScopeMissing: the key is not for inference.
    """
    roles = roles_by_tenant(user)
    key = usable_keys().filter(tenant__in=roles, public_id=key_id).first()
    if key is None:
        raise NotFound("There is no such key, or it works no longer. Choose another.", "key")
    if roles[key.tenant_id] not in GENERATING:
        raise PermissionDenied(VIEWERS_LOOK)
    caller = selectors.caller_of(key)
    caller.require(keys.INFERENCE)
    return caller


def roles_by_tenant(user: Any) -> dict[int, str]:
    """Active tenants only. A superuser is at home in all of them."""
    if user.is_superuser:
        return dict.fromkeys(Tenant.objects.filter(active=True).values_list("pk", flat=True), Role.OWNER)
    return selectors.roles_of(user)


def usable_keys() -> QuerySet[Key]:
    """Neither revoked nor expired, and neither the tenant nor the maker is switched off."""
    in_time = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    made_by_one_of_them = Q(created_by=None) | Q(created_by__active=True, created_by__user__is_active=True)
    return Key.objects.filter(in_time, made_by_one_of_them, revoked_at=None, tenant__active=True).select_related("tenant")
