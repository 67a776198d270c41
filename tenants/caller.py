"""Who is calling, settled at the door: what the rest of the platform knows of a key, its tenant and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from inference.errors import ScopeMissing
from inference.resolve import Layer
from tenants.limits.bounds import Bounds


@dataclass(frozen=True)
class Caller:
    """A snapshot: nothing here is looked up again while a request runs."""

    tenant_id: str  # stable and opaque: it prefixes request ids and goes into cache salts
    tenant: str  # the slug
    key_id: str  # the key's public id
    scopes: frozenset[str]
    models: frozenset[str] | None = None  # None: every model
    weight: float = 1.0
    expires_at: datetime | None = None
    key_layer: Layer | None = None
    model_layers: Mapping[str, Layer] = field(default_factory=dict)
    tenant_layer: Layer | None = None
    key_bounds: Bounds = field(default_factory=Bounds)
    tenant_bounds: Bounds = field(default_factory=Bounds)

    def require(self, scope: str) -> None:
        """Raises ScopeMissing."""
        if scope not in self.scopes:
            raise ScopeMissing(scope)

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models

    def layers(self, *names: str) -> tuple[Layer, ...]:
        """The caller's part of what `inference.resolve` takes: key, tenant for this model (by any of its names, the canonical one first),
        tenant; those that say anything."""
        for_model = next((self.model_layers[name] for name in names if name in self.model_layers), None)
        own = (self.key_layer, for_model, self.tenant_layer)
        return tuple(layer for layer in own if layer is not None)


@dataclass(frozen=True)
class Credential:
    """What is known of a public id. Kept in a cache, so it holds the digest to compare with, never a secret."""

    digest: bytes
    pepper_version: int
    usable: bool  # neither it, nor its maker, nor its tenant is switched off
    caller: Caller
    retired: RetiredDigest | None = None  # what it had before its rotation


@dataclass(frozen=True)
class RetiredDigest:
    digest: bytes
    pepper_version: int
    expires_at: datetime
