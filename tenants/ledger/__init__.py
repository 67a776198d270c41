"""The ledger: one row per admitted request, settled exactly once. `docs/accounting.md` says why that holds through crashes."""

from tenants.ledger.batch import Batch, Outcome
from tenants.ledger.writer import Writer

__all__ = ["Batch", "Outcome", "Writer"]
