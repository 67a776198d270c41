"""The Django admin of the tenants: one file per noun. `scoped` holds what keeps a tenant's people within their tenant."""

from tenants.admin.defaults import DefaultsAdmin
from tenants.admin.key import KeyAdmin
from tenants.admin.limit import LimitAdmin
from tenants.admin.member import MemberAdmin
from tenants.admin.price import PriceAdmin
from tenants.admin.reading import AuditEntryAdmin, EntryAdmin, RollupAdmin
from tenants.admin.site import site
from tenants.admin.tenant import TenantAdmin
from tenants.admin.user import UserAdmin

__all__ = [
    "AuditEntryAdmin", "DefaultsAdmin", "EntryAdmin", "KeyAdmin", "LimitAdmin", "MemberAdmin", "PriceAdmin", "RollupAdmin", "TenantAdmin",
    "UserAdmin", "site",
]
