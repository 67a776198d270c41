"""One file per noun. Every model checks itself on save, so that no door (admin, command, API, shell) lets a wrong value in."""

from tenants.models.audit import AuditEntry
from tenants.models.counter import Counter
from tenants.models.defaults import Defaults, Policy
from tenants.models.entry import Entry, Status
from tenants.models.idempotent import IdempotentCall
from tenants.models.key import Key
from tenants.models.limit import Limit
from tenants.models.price import Price
from tenants.models.process import Process
from tenants.models.retired import RetiredSecret
from tenants.models.rollup import Rollup
from tenants.models.tenant import Member, Role, Tenant
from tenants.models.ticket import Ticket

__all__ = [
    "AuditEntry", "Counter", "Defaults", "Entry", "IdempotentCall", "Key", "Limit", "Member", "Policy", "Price", "Process",
    "RetiredSecret", "Role", "Rollup", "Status", "Tenant", "Ticket",
]
