"""Coupled completions over a node's chunks: several prompts, echo, offsets."""

from __future__ import annotations

from typing import Any

import pytest

from inference.errors import InternalError
from tests.inference.samples import (
    BASE,
    DECODED_TEXT,
    E_IDS,
    PLACEHOLDER_TEXT,
    b,
    coupled_text,
    matrix,
    model,
    plain_lps,
    singles,
    whole,
)

PROMPT_ROWS: list[Any] = [None, {"105": {"logprob": -0.4, "rank": 2, "decoded_token": None}, "72": {"logprob": -0.1, "rank": 1}}]


def texts(chunks: list[dict[str, Any]]) -> list[str]:
    return [choice["text"] for chunk in chunks for choice in chunk["choices"]]


def joined(chunks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    total: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for key in total:
                total[key] += choice["logprobs"][key]
    return total


@pytest.mark.parametrize(("to", "override", "placeholders"), matrix())
def test_g3_names_whole_and_streamed(to: str, override: Any, placeholders: bool) -> None:
    fields = {"logprobs": 2, "return_tokens_as_token_ids": override}
    want = PLACEHOLDER_TEXT if placeholders else DECODED_TEXT
    answer, _ = coupled_text(model(to), singles(E_IDS, BASE), **fields)
    assert whole(answer)["choices"][0]["logprobs"] == want
    _, chunks = coupled_text(model(to), singles(E_IDS, BASE), stream=True, **fields)
    assert joined(chunks) == want


def test_the_keys_of_a_stream() -> None:
    _, chunks = coupled_text(model(), singles(b("ab")), stream=True)
    assert set(chunks[0]) == {"id", "object", "created", "model", "choices"}
    assert set(chunks[0]["choices"][0]) == {"index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"}
    assert "system_fingerprint" in chunks[-1]


def test_choices_of_several_prompts_are_one_list() -> None:
    fed = [{"prompt": p, "index": i, "token_ids": b(f"{p}{i}"), "finish_reason": "stop"} for p in range(2) for i in range(2)]
    answer, _ = coupled_text(model(), fed, prompt=["ab", "cde"], n=2, temperature=1.0)
    made = whole(answer)
    assert [(c["index"], c["text"]) for c in made["choices"]] == [(0, "00"), (1, "01"), (2, "10"), (3, "11")]
    assert [made["usage"][key] for key in ("prompt_tokens", "completion_tokens")] == [5, 8]


def test_the_end_of_a_prompt_is_not_the_end_of_all() -> None:
    answer, chunks = coupled_text(model(), [{"prompt": 1, "token_ids": b("a"), "finish_reason": "stop"}], prompt=["a", "b"], stream=True)
    assert (answer.finished(0), answer.finished(1)) == (False, True)
    assert "system_fingerprint" not in chunks[-1]


def test_an_echo_stands_before_the_text() -> None:
    answer, _ = coupled_text(model(), singles(b(" yo")), echo=True)
    assert whole(answer)["choices"][0]["text"] == "Hi yo"
    _, chunks = coupled_text(model(), singles(b(" yo"), size=2), echo=True, stream=True)
    assert texts(chunks) == ["Hi y", "o"]
    assert [chunk["choices"][0]["prompt_token_ids"] for chunk in chunks] == [[72, 105], None]


@pytest.mark.parametrize("stream", [True, False])
def test_an_echo_brings_the_prompts_logprobs(stream: bool) -> None:
    """The first prompt token has none: nothing predicts it."""
    fields: dict[str, Any] = {"echo": True, "logprobs": 1, "stream": stream}
    answer, chunks = coupled_text(model(), singles(b("!"), plain_lps(b("!"))), prompt_logprobs=PROMPT_ROWS, **fields)
    got = joined(chunks) if stream else whole(answer)["choices"][0]["logprobs"]
    assert got == {
        "tokens": ["H", "i", "!"],
        "token_logprobs": [None, -0.4, -0.5],
        "top_logprobs": [None, {"i": -0.4, "H": -0.1}, {"!": -0.5}],
        "text_offset": [0, 1, 2],
    }


def test_an_echo_alone_shows_and_bills_no_output() -> None:
    answer, _ = coupled_text(model(), singles(b("!"), plain_lps(b("!"))), prompt_logprobs=PROMPT_ROWS, echo=True, logprobs=1, max_tokens=0)
    made = whole(answer)
    choice = made["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]["tokens"]) == ("Hi", "length", ["H", "i"])
    assert made["usage"]["completion_tokens"] == 0


def test_prompt_logprobs_get_their_names_here() -> None:
    answer, _ = coupled_text(model(), singles(b("!")), prompt_logprobs=PROMPT_ROWS)
    rows = whole(answer)["choices"][0]["prompt_logprobs"]
    assert rows[0] is None
    assert [row["decoded_token"] for row in rows[1].values()] == ["i", "H"]


def test_an_echo_with_logprobs_needs_them_from_the_node() -> None:
    with pytest.raises(InternalError):
        coupled_text(model(), singles(b("!"), plain_lps(b("!"))), echo=True, logprobs=1)


def test_a_position_that_the_node_did_not_rank_has_no_logprob() -> None:
    rows = {"content": [{"token_id": 72, "logprob": -9999.0, "rank": None, "top_logprobs": []}]}
    answer, _ = coupled_text(model(), [{"token_ids": [72], "logprobs": rows, "finish_reason": "stop"}], logprobs=1)
    logprobs = whole(answer)["choices"][0]["logprobs"]
    assert (logprobs["token_logprobs"], logprobs["top_logprobs"]) == ([None], [None])


def test_usage_and_ids() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, chunks = coupled_text(model(), singles(b("ab")), stream=True, stream_options=options, return_token_ids=True)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 2]
    assert [set(chunk["usage"]) for chunk in chunks] == [{"prompt_tokens", "total_tokens", "completion_tokens"}] * 3
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks[:2]] == [[97], [98]]
    assert chunks[0]["choices"][0]["prompt_token_ids"] == [72, 105]


@pytest.mark.parametrize("size", [1, 2, 9])
def test_stop_strings(size: int) -> None:
    answer, chunks = coupled_text(model(), singles(b("hello wo"), size=size), stream=True, stop=["lo", "l"])
    assert "".join(texts(chunks)) == "he"
    assert chunks[-1]["choices"][0]["stop_reason"] == "l"
    assert answer.usage.completion_tokens == 3
