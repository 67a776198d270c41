"""The Django admin of the tenants: one file per noun. `scoped` holds what keeps a tenant's people within their tenant."""

from tenants.admin.defaults import DefaultsAdmin
from tenants.admin.key import KeyAdmin
from tenants.admin.member import MemberAdmin
from tenants.admin.site import site
from tenants.admin.tenant import TenantAdmin
from tenants.admin.user import UserAdmin

__all__ = ["DefaultsAdmin", "KeyAdmin", "MemberAdmin", "TenantAdmin", "UserAdmin", "site"]
