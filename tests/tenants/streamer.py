"""A process with twenty open requests that never end: `streamer DATABASE_URL PUBLIC_ID`. Prints their ids, then the tokens noted of each.

Meanwhile it admits and settles others as fast as it can, so that a kill comes in the middle of a transaction.
"""
# ruff: noqa: E402 (Django must be set up before its models are imported)

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile

os.environ["DATABASE_URL"] = sys.argv[1]
os.environ.setdefault("TOKENRY_HOME", tempfile.mkdtemp())
os.environ["DJANGO_SETTINGS_MODULE"] = "tokenry.settings"
sys.path.insert(0, "platform")

import django

django.setup()

from tenants import selectors
from tenants.accounting import Accounting
from tenants.models import Status
from tenants.threads import in_thread

STREAMS, NOTED = 20, 7


async def main(public_id: str) -> None:
    credential = await in_thread(selectors.credential, public_id)
    assert credential is not None
    accounting = Accounting()
    await accounting.start()
    what = {"model": "m", "endpoint": "chat", "request_id": "r", "effective": {}, "prompt_tokens": 5, "max_tokens": 100}
    streams = [await accounting.admit(credential.caller, **what) for _ in range(STREAMS)]
    await asyncio.gather(*(stream.written() for stream in streams))
    print(json.dumps([stream.entry.id for stream in streams]), flush=True)
    for stream in streams:
        stream.progress(NOTED)
    await accounting.checkpoint()
    await accounting.writer.flush()
    print(NOTED, flush=True)
    while True:
        other = await accounting.admit(credential.caller, **what)
        await other.written()
        await other.settle(Status.COMPLETED, completion_tokens=3)


asyncio.run(main(sys.argv[2]))
