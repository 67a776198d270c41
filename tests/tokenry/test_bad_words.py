"""`bad_words` reach nodes as token ids. Only our own nodes read these; another's may ignore them in silence, so it gets no such request."""

from __future__ import annotations

import pytest

from inference.errors import BadRequest
from inference.protocol.generate import GenerateRequest, SamplingParams
from tests.conftest import Scene
from tests.world import script
from tokenry.fleet.node import Node
from tokenry.pipeline import able


def request(bad_words):
    return GenerateRequest(token_ids=[1], sampling_params=SamplingParams(bad_words=bad_words))


def node(ours: bool) -> Node:
    made = Node("http://127.0.0.1:1", None)
    made.takes_bad_words = ours
    return made


def test_only_nodes_that_honour_them_get_them():
    ours, theirs = node(True), node(False)
    assert able([theirs, ours], request(["x"])) == [ours]
    assert able([theirs, ours], request(None)) == [theirs, ours]
    with pytest.raises(BadRequest) as refused:
        able([theirs], request(["x"]))
    assert refused.value.param == "bad_words"


def test_our_node_is_known_as_one(scripted: Scene):
    body = {"messages": [{"role": "user", "content": "Hi"}], "bad_words": ["no"], **script({"ids": [72], "finish": "stop"})}
    assert scripted.alice.http.post("/v1/chat/completions", json=body).status_code == 200
