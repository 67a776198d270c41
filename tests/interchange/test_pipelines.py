"""Every mixture of our steps and vLLM's: who renders, who generates and who derenders makes no difference to the answer."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.interchange.conftest import Services
from tests.interchange.service import CHAT, COMPLETIONS, GENERATE, Kind, Reading, assert_same, read

RENDERERS = DERENDERERS = ("our platform", "vLLM render")
NODES = ("our node", "vLLM tokens-only", "vLLM scale-out")
MIXTURES = list(product(RENDERERS, NODES, DERENDERERS))
SAID = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "Write: 12+34 = 46 🎉 and é."},
]
REQUESTS: list[tuple[Kind, dict[str, Any]]] = [
    (CHAT, {"model": "smollm2", "messages": SAID, "max_tokens": 20, "temperature": 0, "logprobs": True, "top_logprobs": 2}),
    (CHAT, {"model": "smollm2", "messages": SAID[1:], "max_tokens": 20, "temperature": 0}),
    (COMPLETIONS, {"model": "smollm2", "prompt": "1, 2, 3, 4,", "max_tokens": 10, "temperature": 0, "logprobs": 2}),
]


@pytest.fixture
def expected(kind: Kind, request_: dict[str, Any], services: Services) -> Reading:
    """What our coupled endpoint answers."""
    return read(services["our platform"].post(kind.path, request_))


@pytest.mark.parametrize(("kind", "request_"), REQUESTS)
@pytest.mark.parametrize(("renderer", "node", "derenderer"), MIXTURES)
class TestMixtures:
    def test_in_one_piece(
        self, renderer: str, node: str, derenderer: str, kind: Kind, request_: dict[str, Any], services: Services, expected: Reading
    ) -> None:
        rendered = services[renderer].render(kind, request_)
        generated = services[node].post(GENERATE, rendered)
        answer = services[derenderer].derender(kind, request_, rendered["token_ids"], generated)
        assert_same(read(answer), expected)

    def test_as_a_stream(
        self, renderer: str, node: str, derenderer: str, kind: Kind, request_: dict[str, Any], services: Services, expected: Reading
    ) -> None:
        streamed = {**request_, "stream": True, "stream_options": {"include_usage": True}}
        rendered = services[renderer].render(kind, streamed)
        chunks = services[node].events(GENERATE, rendered)
        answers = list(services[derenderer].derender_chunks(kind, streamed, rendered["token_ids"], chunks))
        assert_same(read(*answers), expected)


@pytest.mark.parametrize(("kind", "request_"), REQUESTS)
def test_both_render_the_same_tokens(kind: Kind, request_: dict[str, Any], services: Services) -> None:
    rendered = [services[renderer].render(kind, request_) for renderer in RENDERERS]
    assert rendered[0]["token_ids"] == rendered[1]["token_ids"]


@pytest.mark.parametrize("kind", [CHAT, COMPLETIONS])
def test_our_coupled_answer_is_that_of_vllm(kind: Kind, services: Services) -> None:
    request = next(request for of, request in REQUESTS if of is kind)
    theirs = services["vLLM scale-out"].post(kind.path, request)
    assert_same(read(services["our platform"].post(kind.path, request)), read(theirs))
