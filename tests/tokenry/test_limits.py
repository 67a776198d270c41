"""Limits at the door: what is refused takes nothing, says how long to wait, and waiting helps. What was admitted is in the ledger, once."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.conftest import Scene
from tests.world import Tenant, script

PATH = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
QUICK = {**HI, **script({"ids": [72, 105], "finish": "stop"})}
SLOW = {**HI, **script(*[{"ids": [97], "wait_ms": 50}] * 15, {"ids": [258]})}


def limited(scene: Scene, name: str, **bounds: int) -> Tenant:
    """A new tenant with these limits."""
    tenant = scene.platform.tenant(name)
    code = f"from tenants.models import Limit, Tenant; Limit.objects.create(tenant=Tenant.objects.get(pk={tenant.id}), **{bounds!r})"
    scene.platform.manage("shell", "-c", code)
    time.sleep(0.6)  # what a key may do is cached for half a second
    return tenant


def entries(scene: Scene, tenant: Tenant) -> list[list]:
    """[status, prompt, completion] of every row of the tenant, once all are settled."""
    code = (f"import json; from tenants.models import Entry; print(json.dumps(list(map(list, Entry.objects.filter(tenant_id={tenant.id})"
            f".order_by('id').values_list('status', 'prompt_tokens', 'completion_tokens')))))")
    end = time.monotonic() + 10
    while True:
        rows = json.loads(scene.platform.manage("shell", "-v", "0", "-c", code).strip().splitlines()[-1])
        if all(status != "started" for status, _, _ in rows) or time.monotonic() > end:
            return rows
        time.sleep(0.2)


def test_requests_per_minute(scripted: Scene):
    tenant = limited(scripted, "per-minute", requests_per_minute=3)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: tenant.http.post(PATH, json=QUICK), range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 7
    refused = next(answer for answer in answers if answer.status_code == 429)
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "requests")
    assert 1 <= int(refused.headers["retry-after"]) <= 61  # a minute, in whole seconds
    assert int(refused.headers["retry-after-ms"]) <= 61_000
    good = next(answer for answer in answers if answer.status_code == 200)
    assert good.headers["x-ratelimit-limit-requests"] == "3"
    assert len(entries(scripted, tenant)) == 3


def test_concurrent_requests_and_their_slots(scripted: Scene):
    tenant = limited(scripted, "side-by-side", concurrency=2)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: tenant.http.post(PATH, json=SLOW), range(6)))
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [429] * 4
    assert {a.json()["error"]["code"] for a in answers if a.status_code == 429} == {"concurrency"}
    assert [tenant.http.post(PATH, json=QUICK).status_code for _ in range(3)] == [200] * 3, "a slot is free as soon as its answer is there"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_client_that_leaves_frees_its_slot_and_is_billed_for_what_it_got(scripted: Scene, streaming):
    tenant = limited(scripted, f"leaver-{streaming}", concurrency=1)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(tenant.url + PATH, json={**SLOW, "stream": streaming}, headers=tenant.headers, timeout=0.3 if not streaming else 0.04)
    time.sleep(0.5)
    assert tenant.http.post(PATH, json=QUICK).status_code == 200
    (left, _, generated), quick = entries(scripted, tenant)
    assert left == "cancelled"
    assert generated < 15
    assert quick == ["completed", 21, 2]


def test_a_budget_of_tokens(scripted: Scene):
    tenant = limited(scripted, "frugal", tokens_per_day=50)
    first, second = tenant.http.post(PATH, json=QUICK), tenant.http.post(PATH, json=QUICK)
    assert (first.status_code, second.status_code) == (200, 429)
    assert second.json()["error"]["code"] == "insufficient_quota"
    assert second.headers["x-should-retry"] == "false"


def read_on(socket) -> None:
    while True:
        socket.recv(timeout=10)


@pytest.mark.parametrize("change", ["revoke", "take the model away"])
def test_a_key_that_may_no_longer_ends_its_streams_within_a_second(scripted: Scene, change):
    tenant = scripted.platform.tenant(f"revoked by {change}")
    long = {**HI, "max_tokens": 400, **script(*[{"ids": [97], "wait_ms": 20}] * 390, {"ids": [258]})}
    update = "revoked_at=timezone.now()" if change == "revoke" else "allowed_models=[]"
    code = f"from django.utils import timezone; from tenants.models import Key; Key.objects.filter(tenant_id={tenant.id}).update({update})"
    with (
        connect(tenant.url.replace("http", "ws") + PATH, additional_headers=tenant.headers, close_timeout=1) as socket,
        tenant.http.stream("POST", PATH, json={**long, "stream": True, "max_tokens": 300}) as response,
    ):
        socket.send(json.dumps({"type": "create", "stream_id": "s", "request": long}))
        lines = response.iter_lines()
        while '"content":"a"' not in next(lines):
            pass
        scripted.platform.manage("shell", "-c", code)
        rest = [line[6:] for line in lines if line.startswith("data: ")]
        with pytest.raises(ConnectionClosed) as closed:
            read_on(socket)
    assert rest[-1] == "[DONE]"
    assert json.loads(rest[-2])["error"]["code"] == "invalid_api_key"
    assert len(rest) < 290, "it ended before its time"
    assert closed.value.rcvd.code == 1008
    again = tenant.http.post(PATH, json=QUICK)
    assert again.status_code == (401 if change == "revoke" else 404)
