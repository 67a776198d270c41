"""One file per noun. Every model checks itself on save, so that no door (admin, command, API, shell) lets a wrong value in."""

from tenants.models.defaults import Defaults, Policy
from tenants.models.key import Key
from tenants.models.tenant import Member, Role, Tenant
from tenants.models.ticket import Ticket

__all__ = ["Defaults", "Key", "Member", "Policy", "Role", "Tenant", "Ticket"]
