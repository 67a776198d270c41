"""What the platform refuses by itself, before any node is asked: a node may be another's, and look at less."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference.errors import BadRequest
from tenants.caller import Caller
from tests.inference.samples import HI, model
from tokenry.fleet.registry import Fleet
from tokenry.pipeline import CHAT, COMPLETIONS, Endpoint, build

ANYBODY = Caller(tenant_id="1", tenant="a", key_id="k", scopes=frozenset({"inference"}))
OUTSIDE = model().vocab_size


@pytest.mark.parametrize(("fields", "param"), [
    ({"stop_token_ids": [OUTSIDE]}, "stop_token_ids"), ({"allowed_token_ids": [OUTSIDE]}, "allowed_token_ids"),
    ({"allowed_token_ids": []}, "allowed_token_ids"), ({"logit_bias": {str(OUTSIDE): 1}}, "logit_bias"),
    ({"logprob_token_ids": [-1]}, "logprob_token_ids"), ({"n": 2, "temperature": 0}, "n"), ({"prompt_logprobs": 21}, "prompt_logprobs"),
])  # fmt: skip
def test_what_a_node_might_not_refuse(fields: dict[str, Any], param: str) -> None:
    for endpoint, body in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "Hi"})):
        assert refused(endpoint, {**body, **fields}) == param


@pytest.mark.parametrize("prompt", [[OUTSIDE], [72, 2**40], [[72], [OUTSIDE]]])
def test_prompts_outside_the_vocabulary(prompt: Any) -> None:
    assert refused(COMPLETIONS, {"prompt": prompt}) == "token_ids"
    build(COMPLETIONS, ANYBODY, Fleet([(model(), [])]), b'{"prompt": [72, 265]}', None, None)


def refused(endpoint: Endpoint, body: dict[str, Any]) -> str | None:
    with pytest.raises(BadRequest) as error:
        build(endpoint, ANYBODY, Fleet([(model(), [])]), json.dumps(body).encode(), None, None)
    return error.value.param
