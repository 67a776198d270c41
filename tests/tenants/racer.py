"""A process that asks for many admissions at once and prints how many it got: `racer URL BOUNDS CALLS [--stay]`.

Its leases are short, so that a test sees them end. With --stay it then holds and renews what it got, until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys

from inference.errors import QuotaExceeded, RateLimited
from tenants.limits import Bounds, Granted, SharedAdmission
from tests.tenants.limits_world import Books, order

LEASE = 3.0


async def main(url: str, bounds: Bounds, calls: int, stay: bool) -> None:
    admission = SharedAdmission(Books(), url, lease=LEASE)
    prefix = f"{id(admission)}-{asyncio.get_running_loop().time()}"

    async def ask(number: int) -> Granted | None:
        try:
            return await admission.admit(order(bounds, tokens=10, cost=7, id=f"{prefix}-{number}"))
        except (RateLimited, QuotaExceeded):
            return None

    grants = [grant for grant in await asyncio.gather(*map(ask, range(calls))) if grant is not None]
    print(len(grants), flush=True)
    while stay:
        await asyncio.sleep(LEASE / 3)
        await admission.put(grants)
    await admission.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Bounds(**json.loads(sys.argv[2])), int(sys.argv[3]), "--stay" in sys.argv))
