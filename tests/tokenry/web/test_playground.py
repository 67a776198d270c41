"""The playground's page and data: who may act as which key, and that nobody acts for another tenant."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.conftest import Scene
from tests.people import Person
from tests.tokenry.web.conftest import People
from tests.world import Tenant, script


def key_id(tenant: Tenant) -> str:
    return tenant.key.split("_")[1]


def setup(person: Person) -> dict[str, Any]:
    page = person.data("/playground/").text
    found = re.search(r'<script id="setup" type="application/json">(.+?)</script>', page)
    assert found
    return json.loads(html.unescape(found[1]))


def ticket(person: Person, tenant: Tenant) -> httpx.Response:
    return person.send("/playground/ticket", {"key": key_id(tenant)})


# The page


def test_a_stranger_is_sent_to_the_login(scripted: Scene) -> None:
    answer = httpx.get(f"{scripted.platform.url}/playground/")
    assert (answer.status_code, answer.headers["location"]) == (302, "/admin/login/?next=/playground/")


def test_the_policy_lets_nothing_in_from_outside(people: People) -> None:
    policy = people.developer.data("/playground/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "script-src 'self' 'unsafe-inline' 'unsafe-eval'" in people.root.data("/admin/").headers["content-security-policy"]


def test_the_page_has_no_inline_script_or_style(people: People) -> None:
    page = people.developer.data("/playground/").text
    assert not re.search(r"<script(?![^>]*(src=|application/json))", page)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", page)


def test_each_sees_the_keys_of_its_own_tenants(people: People, scripted: Scene) -> None:
    own = setup(people.developer)
    assert [(tenant["name"], tenant["may_generate"]) for tenant in own["tenants"]] == [("Alice", True)]
    models = {key["id"]: key["models"] for key in own["tenants"][0]["keys"]}
    assert models[key_id(scripted.alice)] == ["m"]
    assert key_id(scripted.bob) not in json.dumps(own)
    assert scripted.alice.key not in json.dumps(own)
    assert {"Alice", "Bob", "demo"} <= {tenant["name"] for tenant in setup(people.root)["tenants"]}


def test_a_viewer_sees_no_keys(people: People) -> None:
    (only,) = setup(people.viewer)["tenants"]
    assert (only["name"], only["may_generate"], only["keys"]) == ("Alice", False, [])


# Tickets


def test_a_ticket_opens_the_socket_as_the_key(people: People, scripted: Scene) -> None:
    text = ticket(people.developer, scripted.alice).json()["ticket"]
    url = scripted.platform.url.replace("http", "ws") + "/v1/chat/completions"
    with connect(url, subprotocols=["tokenry", f"tokenry-ticket.{text}"]) as opened:
        assert opened.subprotocol == "tokenry"
        for stream in ("one", "two"):
            request = {"messages": [{"role": "user", "content": "Hi"}], **script({"ids": [104, 258]})}
            opened.send(json.dumps({"type": "create", "stream_id": stream, "request": request}))
            frames = [json.loads(opened.recv(timeout=20))]
            while frames[-1]["type"] == "chunk":
                frames.append(json.loads(opened.recv(timeout=20)))
            assert (frames[-1]["type"], frames[-1]["stream_id"]) == ("done", stream)
    with pytest.raises(InvalidStatus), connect(url, subprotocols=["tokenry", f"tokenry-ticket.{text}"]):
        pass


def test_another_tenants_key_does_not_exist(people: People, scripted: Scene) -> None:
    theirs = ticket(people.stranger, scripted.alice)
    nobodys = people.stranger.send("/playground/ticket", {"key": "0" * 16})
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.json() == nobodys.json()
    assert people.stranger.data("/playground/defaults", key=key_id(scripted.alice)).status_code == 404


def test_a_viewer_gets_no_ticket(people: People, scripted: Scene) -> None:
    refused = ticket(people.viewer, scripted.alice)
    assert refused.status_code == 403
    assert "viewer" in refused.json()["error"]["message"]


def test_a_superuser_acts_anywhere(people: People, scripted: Scene) -> None:
    assert ticket(people.root, scripted.alice).status_code == ticket(people.root, scripted.bob).status_code == 200


def test_without_the_csrf_token_nothing_is_sold(people: People, scripted: Scene) -> None:
    assert people.developer.http.post("/playground/ticket", json={"key": key_id(scripted.alice)}).status_code == 403


def test_without_a_session_nothing_is_told(scripted: Scene) -> None:
    refused = httpx.get(f"{scripted.platform.url}/playground/defaults", params={"key": key_id(scripted.alice)})
    assert (refused.status_code, refused.json()["error"]["message"]) == (401, "You are logged out.")


@pytest.mark.parametrize("body", [{}, {"key": 5}, {"key": "a", "tenant": 1}, []])
def test_a_ticket_needs_a_key_and_nothing_else(people: People, body: Any) -> None:
    assert people.developer.send("/playground/ticket", body).status_code == 400


def test_a_ticket_is_not_for_the_asking_by_get(people: People) -> None:
    assert people.developer.data("/playground/ticket").status_code == 405


# What a request inherits, and what tokens are called


def test_inherited_values_are_those_of_the_api(people: People, scripted: Scene) -> None:
    asked = people.stranger.data("/playground/defaults", key=key_id(scripted.bob), model="m").json()
    told = scripted.bob.http.get("/v1/defaults").json()
    assert asked["fields"] == told["fields"]
    assert asked["fields"]["return_tokens_as_token_ids"] == {"value": True, "source": "tenant"}
    other = people.developer.data("/playground/defaults", key=key_id(scripted.alice)).json()["fields"]
    assert other["return_tokens_as_token_ids"] == {"value": False, "source": "builtin"}


def test_tokens_by_text_and_by_id(people: People, scripted: Scene) -> None:
    body = {"key": key_id(scripted.alice), "model": "m", "texts": ["h", "no token"], "ids": [104, 200, 10**6]}
    named = people.developer.send("/playground/tokens", body).json()
    assert named["ids"] == {"h": [104], "no token": []}
    assert named["texts"]["104"] == {"text": "h", "bytes": [104]}
    assert named["texts"]["200"]["bytes"] is None
    assert named["texts"]["1000000"] == {"text": "", "bytes": None}


def test_an_unknown_model_has_no_tokens(people: People, scripted: Scene) -> None:
    body = {"key": key_id(scripted.alice), "model": "nope", "ids": [1]}
    assert people.developer.send("/playground/tokens", body).status_code == 404
