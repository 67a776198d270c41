"""Reads. Every query for a tenant's rows goes through one of these, so that the scope is in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils.module_loading import import_string

from inference.errors import NotFound
from inference.resolve import Layer
from tenants.caller import Caller, Credential, RetiredDigest
from tenants.limits.bounds import Bounds
from tenants.models import Defaults, Key, Limit, Member, RetiredSecret, Tenant


def tenant_named(name: str) -> Tenant:
    """By slug, else by name. Raises NotFound."""
    tenant: Tenant | None = Tenant.objects.filter(slug=name).first() or Tenant.objects.filter(name=name).first()
    if tenant is None:
        raise NotFound(f"There is no tenant {name!r}.", "tenant")
    return tenant


def memberships(user: Any) -> QuerySet[Member]:
    """Where the user has a say today: active memberships of active tenants."""
    return Member.objects.filter(user=user, active=True, tenant__active=True)


def roles_of(user: Any) -> dict[int, str]:
    """The user's role by tenant id."""
    return dict(memberships(user).values_list("tenant_id", "role"))


def tenants_of(user: Any) -> QuerySet[Tenant]:
    """The tenants whose affairs the user may look at: all of them for a superuser."""
    return Tenant.objects.all() if user.is_superuser else Tenant.objects.filter(pk__in=roles_of(user))


def within(queryset: QuerySet[Any], tenant_ids: Collection[int], path: str) -> QuerySet[Any]:
    """The rows of these tenants; `path` is the lookup from a row to its tenant's id."""
    return queryset.filter(**{f"{path}__in": tenant_ids})


def credential(public_id: str) -> Credential | None:
    """Everything that a request needs to know of its key, in four queries at most."""
    key = Key.objects.select_related("tenant", "created_by__user", "retired_secret").filter(public_id=public_id).first()
    if key is None:
        return None
    return Credential(bytes(key.digest), key.pepper_version, is_usable(key), caller_of(key), retired_digest(key))


def retired_digest(key: Key) -> RetiredDigest | None:
    """Of the secret before the last rotation, which may be shown for a while longer."""
    retired: RetiredSecret | None = getattr(key, "retired_secret", None)
    return None if retired is None else RetiredDigest(bytes(retired.digest), retired.pepper_version, retired.expires_at)


def is_usable(key: Key) -> bool:
    maker = key.created_by
    return key.revoked_at is None and key.tenant.active and (maker is None or (maker.active and maker.user.is_active))


def caller_of(key: Key) -> Caller:
    layers = [(row, row.layer()) for row in defaults_for(key)]
    bounds = {limit.key_id: limit.bounds() for limit in Limit.objects.filter(Q(key=None) | Q(key=key), tenant=key.tenant)}
    return Caller(
        tenant_id=str(key.tenant.pk),
        tenant=key.tenant.slug,
        key_id=key.public_id,
        scopes=frozenset(key.scopes),
        models=intersection(key.allowed_models, key.tenant.allowed_models),
        weight=key.tenant.weight,
        expires_at=key.expires_at,
        key_layer=next((layer for _, layer in layers if layer.source == "key"), None),
        model_layers={row.model: layer for row, layer in layers if layer.source == "tenant_model"},
        tenant_layer=next((layer for _, layer in layers if layer.source == "tenant"), None),
        key_bounds=bounds.get(key.pk, Bounds()),
        tenant_bounds=bounds.get(None, Bounds()),
    )


def defaults_for(key: Key) -> QuerySet[Defaults]:
    """The key's own defaults and its tenant's."""
    return tenant_defaults(key.tenant).filter(Q(key=None) | Q(key=key))


def tenant_defaults(tenant: Tenant) -> QuerySet[Defaults]:
    return Defaults.objects.filter(tenant=tenant).select_related("tenant", "key").prefetch_related("policies")


def intersection(*lists: Iterable[str] | None) -> frozenset[str] | None:
    """Of allow-lists, where None allows all."""
    given = [frozenset(names) for names in lists if names is not None]
    return frozenset.intersection(*given) if given else None


def layers_above(row: Defaults) -> tuple[Layer, ...]:
    """What the row inherits from, innermost first: its tenant's wider defaults, the model, the server."""
    others = tenant_defaults(row.tenant).filter(key=None, model="") if row.source != "tenant" else Defaults.objects.none()
    return (*(other.layer() for other in others), *outer_layers(row.model))


def outer_layers(model: str) -> Sequence[Layer]:
    """The layers of model and server, which only the platform knows: settings.MODEL_LAYERS names a function of the model's name."""
    path: str | None = getattr(settings, "MODEL_LAYERS", None)
    if path is None:
        return ()
    provider: Callable[[str], Sequence[Layer]] = import_string(path)
    return provider(model)
