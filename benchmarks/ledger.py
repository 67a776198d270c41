"""How soon reads of a ledger of a million rows begin to answer: lists, sums and the export, by API and in the admin.

    python -m benchmarks.ledger [--rows 1000000] [--stores postgres]

The rows are one tenant's, over the last thirty days. Each figure is the median and the worst of several calls, to the first byte of the
body (of an export: of the first rows).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.overhead import stores
from tests.people import make_people
from tests.world import Server, World

CALLS = 7
FILL = """
from django.db import connection
from tenants.models import Key
public = Key.objects.get(tenant_id={tenant}, name="first key").public_id
lite = connection.vendor == "sqlite"
series = "(WITH RECURSIVE t(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n < {rows} - 1) SELECT n FROM t)" if lite else \\
    "(SELECT generate_series(0, {rows} - 1)::bigint AS n)"
ms = "({first} + n * {step})"
ident = f"printf('%012x', {{ms}}) || lower(hex(randomblob(10)))" if lite else f"lpad(to_hex({{ms}}), 12, '0') || left(md5(n::text), 20)"
when = f"strftime('%Y-%m-%d %H:%M:%f', {{ms}} / 1000.0, 'unixepoch')" if lite else f"to_timestamp({{ms}} / 1000.0)"
empty = "'{{}}'"
with connection.cursor() as cursor:
    cursor.execute(f'''INSERT INTO tenants_entry (id, tenant_id, key_id, model, endpoint, request_id, status, process, created, settled,
        reserved_tokens, prompt_tokens, completion_tokens, cached_tokens, cost, rate_input, rate_output, rate_cached, effective)
        SELECT {{ident}}, {tenant}, %s, CASE WHEN n % 10 = 0 THEN 'large' ELSE 'm' END, 'chat', 'chatcmpl-' || n,
        CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'completed' END, 'p', {{when}}, {{when}}, 100, 20, 30, 0, 5000, 1, 2, 1, {{empty}}
        FROM {{series}} AS numbers'''.replace("% ", "%% "), [public])
    day = "date(created)" if lite else "(created AT TIME ZONE 'UTC')::date"
    cursor.execute(f'''INSERT INTO tenants_rollup (tenant_id, key_id, model, day, requests, failed, prompt_tokens, completion_tokens,
        cached_tokens, cost) SELECT tenant_id, key_id, model, {{day}}, count(*), sum(CASE WHEN status = 'failed' THEN 1 ELSE 0 END),
        sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(cost) FROM tenants_entry
        GROUP BY tenant_id, key_id, model, {{day}}''')
    cursor.execute("ANALYZE")
"""


def fill(server: Server, tenant_id: str, rows: int) -> None:
    first = datetime.now(UTC) - timedelta(days=30)
    step = 30 * 24 * 3600 * 1000 // rows
    code = FILL.format(tenant=tenant_id, rows=rows, first=int(first.timestamp() * 1000), step=step)
    server.manage("shell", "-v", "0", "-c", code, seconds=900)


def first_byte(client: httpx.Client, path: str) -> float:
    """Seconds. What follows the first piece is not waited for."""
    begun = time.perf_counter()
    with client.stream("GET", path) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{path} answered {response.status_code}: {response.read()[:300]!r}")
        with closing(response.iter_raw()) as pieces:
            next(piece for piece in pieces if len(piece) > 200 or b"id," not in piece)
        return time.perf_counter() - begun


def deep_page(client: httpx.Client) -> str:
    """A page in the middle of the month."""
    day = (datetime.now(UTC) - timedelta(days=15)).date()
    page = client.get("/v1/usage/requests", params={"until": day.isoformat(), "limit": 1}).json()
    return str(page["after"])


def measure(what: str, client: httpx.Client, path: str) -> None:
    times = [first_byte(client, path) * 1000 for _ in range(CALLS)]
    print(f"{what:42} {statistics.median(times):8.0f} {max(times):8.0f} ms", flush=True)


def reads(api: httpx.Client, admin: httpx.Client) -> list[tuple[str, httpx.Client, str]]:
    since = (datetime.now(UTC) - timedelta(days=30)).date().isoformat()
    return [
        ("/v1/usage by day, key and model", api, f"/v1/usage?by=day,key,model&since={since}"),
        ("/v1/usage/requests, first page", api, "/v1/usage/requests"),
        ("/v1/usage/requests, deep page", api, f"/v1/usage/requests?after={deep_page(api)}"),
        ("/v1/usage/requests, failed ones", api, "/v1/usage/requests?status=failed"),
        ("/v1/usage/export of the month", api, f"/v1/usage/export?since={since}"),
        ("usage page", admin, "/usage/?days=30"),
        ("export of the usage page", admin, "/usage/export?days=30"),
        ("admin: list of requests", admin, "/admin/tenants/entry/"),
        ("admin: list of requests, failed ones", admin, "/admin/tenants/entry/?status__exact=failed"),
        ("admin: front page", admin, "/admin/"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--stores", choices=["embedded", "postgres"], default="embedded", help="postgres: PostgreSQL and Valkey")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stores(options.stores) as env:
        world = World(Path(folder))
        try:
            platform = world.scripted_platform("platform", world.scripted_node("node"), env=env)
            tenant = platform.tenant("bench")
            key: dict[str, Any] = json.loads(platform.manage("create_key", "bench", "--scope", "usage:read", "--json"))
            [owner] = make_people(platform, ("owner", "bench", "owner"))
            fill(platform, tenant.id, options.rows)
            print(f"{options.rows} rows, stores: {options.stores}; to the first byte: median, worst", flush=True)
            with httpx.Client(base_url=platform.url, headers={"Authorization": f"Bearer {key['key']}"}, timeout=120) as api:
                for what, client, path in reads(api, owner.http):
                    measure(what, client, path)
        finally:
            world.stop()


if __name__ == "__main__":
    main()
