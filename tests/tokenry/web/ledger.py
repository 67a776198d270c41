"""Rows of use on a running server, written by the ledger itself."""

from __future__ import annotations

import json

from tests.world import Server

USE = """
import json
from datetime import UTC, datetime, timedelta
from tenants.entry_ids import new_id
from tenants.ledger import book
from tenants.ledger.batch import Outcome
from tenants.models import Entry, Key
rows, outcomes = [], []
for public_id, model, days_ago, prompt, completion, status in json.loads({uses!r}):
    at = datetime.now(UTC) - timedelta(days=days_ago)
    key = Key.objects.get(public_id=public_id)
    row = Entry(id=new_id(at), tenant=key.tenant, key=key, model=model, endpoint="chat", request_id="r", process="", created=at,
                reserved_tokens=0, prompt_tokens=prompt, rate_input=1_000_000, rate_output=2_000_000)
    rows.append(row)
    outcomes.append(Outcome(row.id, status, at + timedelta(seconds=1.5), prompt, completion, 0))
Entry.objects.bulk_create(rows)
book.settle(outcomes)
"""


def use(server: Server, *uses: tuple[str, str, int, int, int, str]) -> None:
    """(key's public id, model, days ago, prompt tokens, completion tokens, status) each; every answer took 1.5 seconds."""
    server.manage("shell", "--no-imports", "-c", USE.format(uses=json.dumps(uses)))
