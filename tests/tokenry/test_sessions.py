"""Derender sessions: what they answer, that a chunk twice counts once, that another process goes on, and their bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.conftest import Scene
from tests.contract.targets import HERMES
from tests.tokenry.test_paths_agree import CALL, MESSAGES, TOOLS, tokens
from tests.world import Tenant, World

PROMPT = [257, *b"user\nHi", 258, 10, 257, *b"assistant\n"]
CHAT = {"messages": MESSAGES, "tools": TOOLS}
TEXT = f"<think>Grüße 🙂</think>Gut.{CALL}"


@pytest.fixture(scope="session")
def pair(world: World, scripted: Scene) -> tuple[Tenant, Tenant]:
    """The same tenant's rights on two platforms: what one process began, another must finish."""
    env = {"TOKENRY_MAX_TENANT_SESSIONS": "3"}
    one, two = (world.scripted_platform(f"sessions-{i}", scripted.node, *HERMES, env=env).tenant("Alice") for i in range(2))
    return one, two


@contextmanager
def socket(tenant: Tenant, **options: Any) -> Iterator[ClientConnection]:
    options = {"additional_headers": tenant.headers, **options}
    with connect(tenant.url.replace("http", "ws") + "/v1/derender/session", open_timeout=10, **options) as opened:
        yield opened


def ask(opened: ClientConnection, kind: str, session_id: str = "s", **fields: Any) -> dict[str, Any]:
    opened.send(json.dumps({"type": kind, "session_id": session_id, **fields}))
    answer: dict[str, Any] = json.loads(opened.recv(timeout=10))
    return answer


def begin(opened: ClientConnection, session_id: str = "s", **fields: Any) -> None:
    answer = ask(opened, "open", session_id, **{"chat_request": CHAT, "prompt_token_ids": PROMPT, **fields})
    assert answer["type"] == "opened", answer


def piece(ids: list[int], index: int = 0, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "token_ids": ids, "finish_reason": finish}]}


def test_a_session_answers_as_the_stateless_endpoint_does(pair: tuple[Tenant, Tenant]) -> None:
    alice, state = pair[0], None
    ids = tokens(TEXT)
    with socket(alice) as opened:
        begin(opened)
        for seq, start in enumerate(range(0, len(ids), 4)):
            chunk = piece(ids[start : start + 4], finish="stop" if start + 4 >= len(ids) else None)
            alive = ask(opened, "chunk", seq=seq, generate_chunk=chunk)
            call = {"stream": True, "generate_chunk": chunk, "stream_state": state, "chat_request": CHAT, "prompt_token_ids": PROMPT}
            stateless = alice.http.post("/v1/chat/completions/derender", json=call).json()
            state = stateless["stream_state"]
            assert without_ids(alive["chunk"]["choices"]) == without_ids(stateless["chunk"]["choices"])
            told = ask(opened, "state")
            assert (told["seq"], without_ids([told["stream_state"]])) == (seq, without_ids([state]))


def without_ids(choices: list[Any]) -> Any:
    """Call ids are random, so two parsers give two."""
    for choice in choices:
        for call in choice.get("delta", {}).get("tool_calls", ()):
            call.pop("id")
        choice.pop("last_tool_call_ids", None)
    return choices


def test_another_process_goes_on_from_the_state(pair: tuple[Tenant, Tenant]) -> None:
    ids = tokens(TEXT)
    for cut in (1, 9, len(ids) // 2, len(ids) - 12):
        with socket(pair[0]) as opened:
            begin(opened)
            whole = ask(opened, "chunk", seq=0, generate_chunk=piece(ids[:cut]))["chunk"]["choices"]
            whole += ask(opened, "chunk", seq=1, generate_chunk=piece(ids[cut:], finish="stop"))["chunk"]["choices"]
        with socket(pair[0]) as opened:
            begin(opened)
            ask(opened, "chunk", seq=0, generate_chunk=piece(ids[:cut]))
            state = ask(opened, "state")["stream_state"]
        with socket(pair[1]) as opened:
            begin(opened, stream_state=state)
            rest = ask(opened, "chunk", seq=1, generate_chunk=piece(ids[cut:], finish="stop"))["chunk"]["choices"]
        assert without_ids(rest) == without_ids(whole[1:])


def test_a_chunk_sent_twice_is_answered_once(pair: tuple[Tenant, Tenant]) -> None:
    with socket(pair[0]) as opened:
        begin(opened, chat_request={"messages": MESSAGES})
        ask(opened, "chunk", seq=0, generate_chunk=piece(tokens("</think>ab")))
        again = {"type": "chunk", "session_id": "s", "seq": 0, "generate_chunk": piece(tokens("</think>ab"))}
        opened.send(json.dumps(again))
        answer = ask(opened, "chunk", seq=1, generate_chunk=piece(tokens("cd")))
        assert (answer["seq"], answer["chunk"]["choices"][0]["delta"]["content"]) == (1, "cd")
        assert ask(opened, "state")["stream_state"]["output_chunk_lens"] == [3, 2]


def test_a_gap_is_an_error_and_harms_nothing(pair: tuple[Tenant, Tenant]) -> None:
    with socket(pair[0]) as opened:
        begin(opened)
        ask(opened, "chunk", seq=5, generate_chunk=piece(tokens("</think>a")))
        gap = ask(opened, "chunk", seq=7, generate_chunk=piece([98]))
        assert (gap["type"], gap["session_id"], gap["error"]["param"]) == ("error", "s", "seq")
        answer = ask(opened, "chunk", seq=6, generate_chunk=piece([98]))
        assert answer["chunk"]["choices"][0]["delta"]["content"] == "b"


def test_several_choices_and_several_sessions_do_not_mix(pair: tuple[Tenant, Tenant]) -> None:
    with socket(pair[0]) as opened:
        begin(opened, "a")
        begin(opened, "b")
        texts: dict[tuple[str, int], str] = {}
        for seq, letter in enumerate(["</think>x", "y", "z"]):
            for session_id in ("a", "b"):
                for index in (0, 1):
                    own = f"{letter}{session_id}{index}"
                    answer = ask(opened, "chunk", session_id, seq=2 * seq + index, generate_chunk=piece(tokens(own), index))
                    delta = answer["chunk"]["choices"][0]["delta"]
                    texts[session_id, index] = texts.get((session_id, index), "") + (delta["content"] or "")
        assert texts == {(s, i): f"x{s}{i}y{s}{i}z{s}{i}" for s in ("a", "b") for i in (0, 1)}
        states = ask(opened, "state", "a")["stream_states"]
        assert sorted(states) == ["0", "1"]
        ask(opened, "close", "b")
        begin(opened, "b", stream_states=states)
        answer = ask(opened, "chunk", "b", seq=0, generate_chunk=piece([65], 1))
        assert answer["chunk"]["choices"][0]["delta"] == {"role": None, "content": "A", "reasoning": None}


def test_completions(pair: tuple[Tenant, Tenant]) -> None:
    with socket(pair[0]) as opened:
        begin(opened, chat_request=None, completion_request={"prompt": "x"}, prompt_token_ids=None)
        emoji = list("🙂!".encode())
        texts = [ask(opened, "chunk", seq=i, generate_chunk=piece([b]))["chunk"]["choices"][0]["text"] for i, b in enumerate(emoji)]
        assert texts == ["", "", "", "🙂", "!"]


@pytest.mark.parametrize(("fields", "param"), [
    ({"chat_request": None}, "chat_request"),
    ({"completion_request": {"prompt": "x"}}, "chat_request"),
    ({"prompt_token_ids": None}, "prompt_token_ids"),
    ({"prompt_token_ids": [-1]}, "frame.prompt_token_ids.0"),
    ({"prompt_token_ids": [1] * 600}, "prompt_token_ids"),
    ({"model": "nope"}, "model"),
    ({"stream_state": {"output_token_ids": [1], "output_chunk_lens": []}}, "body.stream_state.output_chunk_lens"),
    ({"stream_states": {"9999": {}}}, "index"),
])
def test_what_opens_no_session(pair: tuple[Tenant, Tenant], fields: dict[str, Any], param: str) -> None:
    with socket(pair[0]) as opened:
        answer = ask(opened, "open", **{"chat_request": CHAT, "prompt_token_ids": PROMPT, **fields})
        assert (answer["type"], answer["session_id"], answer["error"]["param"]) == ("error", "s", param)
        begin(opened)


def test_frames_that_are_none(pair: tuple[Tenant, Tenant]) -> None:
    with socket(pair[0]) as opened:
        assert ask(opened, "chunk", seq=0, generate_chunk=piece([1]))["error"]["param"] == "session_id"
        begin(opened)
        assert ask(opened, "nonsense")["error"]["param"] == "type"
        assert ask(opened, "open", chat_request=CHAT, prompt_token_ids=PROMPT)["error"]["param"] == "session_id"
        assert ask(opened, "chunk", seq=-1, generate_chunk=piece([1]))["error"]["param"] == "frame.seq"
        assert ask(opened, "chunk", seq=0)["error"]["param"] == "frame.generate_chunk"
        two = {"choices": [{"index": 0, "token_ids": [1]}, {"index": 1, "token_ids": [1]}]}
        assert ask(opened, "chunk", seq=0, generate_chunk=two)["error"]["param"] == "generate_chunk.choices"
        assert ask(opened, "chunk", seq=0, generate_chunk=piece([1] * 600))["error"]["param"] == "generate_chunk"
        assert ask(opened, "chunk", seq=0, generate_chunk=piece(tokens("</think>a")))["type"] == "chunk"
        opened.send("{")
        assert json.loads(opened.recv(timeout=10))["error"]["type"] == "Bad Request"


def test_a_tenant_has_so_many_sessions(pair: tuple[Tenant, Tenant]) -> None:
    with socket(pair[0]) as one, socket(pair[0]) as two:
        begin(one, "a")
        begin(one, "b")
        begin(two, "c")
        full = ask(two, "open", "d", chat_request=CHAT, prompt_token_ids=PROMPT)
        assert (full["error"]["type"], full["error"]["code"]) == ("rate_limit_error", "concurrency")
        assert ask(one, "close", "a")["type"] == "closed"
        begin(two, "d")
    with socket(pair[0]) as again:
        for session_id in ("a", "b", "c"):
            begin(again, session_id)


def test_a_session_grows_old(world: World, scripted: Scene) -> None:
    env = {"TOKENRY_SESSION_MAX_SECONDS": "0.3", "TOKENRY_MAX_TENANT_SESSIONS": "1"}
    alice = world.scripted_platform("sessions-old", scripted.node, env=env).tenant("Alice")
    with socket(alice) as opened:
        begin(opened, chat_request={"messages": MESSAGES})
        answer = {"type": "chunk"}
        for seq in range(100_000):
            answer = ask(opened, "chunk", seq=seq, generate_chunk=piece([65]))
            if answer["type"] == "error":
                break
        else:
            pytest.fail("the session never ended")
        assert answer["error"]["param"] == "session_id"
        begin(opened, chat_request={"messages": MESSAGES})


def test_who_may_enter(pair: tuple[Tenant, Tenant]) -> None:
    with pytest.raises(InvalidStatus) as refused, socket(pair[0], additional_headers={}):
        pass
    assert refused.value.response.status_code == 401
    ticket = pair[0].http.post("/v1/tickets", json={"model": "m"}).json()["ticket"]
    with socket(pair[0], additional_headers={}, subprotocols=["tokenry", f"tokenry-ticket.{ticket}"]) as opened:
        begin(opened)


def test_where_scale_out_is_switched_off(world: World, scripted: Scene) -> None:
    alice = world.scripted_platform("sessions-closed", scripted.node, "--no-scale-out").tenant("Alice")
    with pytest.raises(InvalidStatus) as refused, socket(alice):
        pass
    assert refused.value.response.status_code == 403
