"""Who may go on now: requests and tokens per minute, requests at once, budgets per day and month, of a key and of its tenant.

One atomic step checks every limit and takes from all or from none (`Admission.admit`). What was taken is a hold, which is corrected
while the request runs (`put`) and given back when its ledger row is settled (`drop`). `docs/accounting.md` has the reasons.
"""

from tenants.limits.admission import Admission, Granted
from tenants.limits.bounds import Bounds, Hold, Order, Scope, Spent
from tenants.limits.local import LocalAdmission
from tenants.limits.shared import SharedAdmission

__all__ = ["Admission", "Bounds", "Granted", "Hold", "LocalAdmission", "Order", "Scope", "SharedAdmission", "Spent"]
