"""The sampler against a plain reference in float64 that follows the definitions one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inference.engine.edits import edited
from inference.engine.request import Request, Sequence
from inference.engine.sampler import sample
from tests.inference.engine.running import request

DRAWS = 20_000
VOCABULARY = 600  # more than the candidates that are looked at first, more than one block


def choice(ids: list[int] | None = None, generated: list[int] | None = None, **sampling: Any) -> Sequence:
    seq = Request(request("r", [5, 6, 7] if ids is None else ids, **{"max_tokens": 10_000, **sampling})).choices[0]
    for token in generated or []:
        seq.append(token, 100_000)
    return seq


def logits(seed: int = 0, rows: int = 1, spread: float = 2.0) -> Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * spread


def distribution(row: Tensor, sampling: Any) -> Tensor:
    """What the parameters define, in float64: temperature, min-p, top-k, top-p, in this order."""
    weights = torch.softmax(row.double() / sampling.temperature, -1)
    weights[weights < sampling.min_p * weights.max()] = 0
    order = torch.argsort(weights, descending=True)
    if sampling.top_k > 0:
        weights[order[sampling.top_k :]] = 0
    weights /= weights.sum()
    before = 0.0
    for token in order.tolist():
        share = float(weights[token])
        if before >= sampling.top_p:
            weights[token] = 0
        before += share
    return weights / weights.sum()


FILTERS = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.6},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 300},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 0.999, "temperature": 1.9},
    {"min_p": 0.05},
    {"top_k": 20, "top_p": 0.8},
    {"top_k": 200, "top_p": 0.95, "min_p": 0.02, "temperature": 1.3},
    {"min_p": 0.1, "top_p": 0.7},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_chi_squared(filters: dict[str, Any]) -> None:
    """20,000 seeded draws against the exact distribution, at a chance of one in a thousand to fail if all is right."""
    seq = choice(seed=11, **filters)
    row = logits(3)
    expected = distribution(row[0], seq.sampling)
    batch = row.expand(200, -1)
    counts = torch.zeros(VOCABULARY)
    for _ in range(DRAWS // 200):
        for result in sample(batch, [seq] * 200):
            counts[result.token_ids[0]] += 1
    assert not counts[expected == 0].any(), "a token that the filters exclude was drawn"
    often = expected * DRAWS >= 5
    observed = [*counts[often].tolist(), float(counts[~often].sum())]
    wanted = [*(expected[often] * DRAWS).tolist(), float(expected[~often].sum()) * DRAWS]
    pairs = [(seen, want) for seen, want in zip(observed, wanted, strict=True) if want > 0]
    statistic = sum((seen - want) ** 2 / want for seen, want in pairs)
    freedom = max(1, len(pairs) - 1)
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3  # Wilson and Hilferty


@given(
    seed=st.integers(0, 10_000), spread=st.sampled_from([0.1, 1.0, 5.0, 40.0]), temperature=st.sampled_from([0.01, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 128, 129, 599, 600, 5000]), top_p=st.sampled_from([1e-6, 0.3, 0.9, 0.9999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.5, 1.0]))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_only_what_the_filters_keep(seed: int, spread: float, temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    choices = [choice(seed=seed + number, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p) for number in range(8)]
    rows = logits(seed, len(choices), spread)
    for row, seq, result in zip(rows, choices, sample(rows, choices), strict=True):
        allowed = distribution(row, seq.sampling)
        assert allowed[result.token_ids[0]] > 0 or close_to_the_edge(row, result.token_ids[0], allowed, seq.sampling)


def close_to_the_edge(row: Tensor, token: int, allowed: Tensor, sampling: Any) -> bool:
    """float32 may see the last token on the other side of a bound."""
    last = row[allowed > 0].min()
    return float(last - row[token]) <= 1e-4 * sampling.temperature * max(1.0, float(row.abs().max()))


def test_the_last_token_of_a_nucleus_can_be_drawn() -> None:
    """top-p keeps the smallest set that reaches p, so the token that crosses it stays."""
    row = torch.full((1, VOCABULARY), -100.0)
    row[0, :3] = torch.tensor([0.5, 0.3, 0.2]).log()
    seen = {sample(row, [choice(seed=seed, top_p=0.6)])[0].token_ids[0] for seed in range(100)}
    assert seen == {0, 1}


def test_a_seed_gives_the_same_alone_and_among_others() -> None:
    rows = logits(4, 32)
    settings_of = [FILTERS[number % len(FILTERS)] for number in range(32)]
    together = sample(rows, [choice(seed=number, **settings_of[number]) for number in range(32)])
    alone = [sample(rows[number : number + 1], [choice(seed=number, **settings_of[number])])[0] for number in range(32)]
    assert together == alone


def test_choices_of_one_seed_draw_from_seed_plus_index() -> None:
    first, second = Request(request("r", [5], n=2, seed=7)).choices
    assert second.rng.random() == choice(seed=8).rng.random() != first.rng.random()


def test_without_a_seed_draws_differ() -> None:
    row = torch.zeros(1, VOCABULARY)
    assert len({sample(row, [choice()])[0].token_ids[0] for _ in range(50)}) > 10


# ---- edits


def reference_edit(row: Tensor, seq: Sequence) -> Tensor:
    """Allowed ids, bad words, minimum length, bias, penalties: token by token, as they are defined."""
    s, out, generated = seq.sampling, row.double().clone(), seq.ids[seq.request.prompt_len :]
    for token in range(len(row)):
        if s.allowed_token_ids is not None and token not in s.allowed_token_ids:
            out[token] = float("-inf")
        for word in s.bad_words_token_ids:
            if token == word[-1] and (len(word) == 1 or generated[-(len(word) - 1) :] == list(word[:-1])):
                out[token] = float("-inf")
        ends = (() if s.ignore_eos else s.eos_token_ids) + s.stop_token_ids
        if len(generated) < s.min_tokens and token in ends:
            out[token] = float("-inf")
        out[token] += (s.logit_bias or {}).get(token, 0.0)
        if token in seq.ids and s.repetition_penalty != 1:
            out[token] = out[token] / s.repetition_penalty if out[token] > 0 else out[token] * s.repetition_penalty
        out[token] -= s.frequency_penalty * generated.count(token)
        out[token] -= s.presence_penalty * (token in generated)
    return out


EDITS: list[dict[str, Any]] = [
    {"presence_penalty": 0.7},
    {"frequency_penalty": -0.4},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.6, "frequency_penalty": 0.3, "presence_penalty": -1.5},
    {"logit_bias": {3: 50.0, 10: -100.0, 599: 1.5}},
    {"allowed_token_ids": (3, 10, 599)},
    {"allowed_token_ids": (3, 10, 599), "logit_bias": {3: -4.0, 11: 100.0}},
    {"bad_words_token_ids": ((9,), (8, 10), (8, 9, 11), (7, 8, 8, 9, 12), (1, 2, 13))},
    {"min_tokens": 5, "eos_token_ids": (2,), "stop_token_ids": (40, 41)},
    {"min_tokens": 4, "eos_token_ids": (2,), "stop_token_ids": (40, 41)},
    {"min_tokens": 5, "eos_token_ids": (2,), "stop_token_ids": (40,), "ignore_eos": True},
    {},
]


@pytest.mark.parametrize("edits", EDITS, ids=str)
def test_edits_equal_the_reference(edits: dict[str, Any]) -> None:
    rows = logits(5, 2)
    edited_row = choice([5, 6, 7], [8, 8, 9, 8], **edits)
    other = choice([1, 2], [2, 3], repetition_penalty=1.2)
    before = rows.clone()
    result = edited(rows, [edited_row, other])
    torch.testing.assert_close(result[0].double(), reference_edit(rows[0], edited_row), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(result[1].double(), reference_edit(rows[1], other), atol=1e-4, rtol=1e-5)
    assert torch.equal(rows, before), "the model's logits must stay, logprobs are taken of them"


def test_a_longer_bad_word_needs_all_of_its_beginning_among_the_generated_ids() -> None:
    """A prompt that ends with the beginning does not count."""
    rows = torch.zeros(1, VOCABULARY)
    rows[0, 9] = 5.0
    word = {"bad_words_token_ids": ((7, 9),), "temperature": 0}
    assert sample(rows, [choice([5, 7], **word)])[0].token_ids == [9]
    assert sample(rows, [choice([5, 7], [7], **word)])[0].token_ids != [9]


# ---- faults


def test_a_row_that_cannot_be_sampled_fails_alone() -> None:
    rows = logits(6, 4)
    rows[1, 0] = float("nan")
    nothing_left = choice(allowed_token_ids=(2,), min_tokens=1, stop_token_ids=(2,))
    results = sample(rows, [choice(seed=1), choice(seed=2), choice(logit_bias={9999: 1.0}), nothing_left])
    assert [result.error is not None for result in results] == [False, True, True, True]
    assert results[0] == sample(rows[:1], [choice(seed=1)])[0]


# ---- logprobs


def reference_row(row: Tensor, token: int, count: int) -> list[tuple[int, float, int]]:
    logprobs = torch.log_softmax(row.double(), -1)
    order = torch.argsort(logprobs, descending=True).tolist()
    entry = {tid: (tid, float(logprobs[tid]), rank) for rank, tid in enumerate(order, start=1)}
    return [entry[token], *(entry[tid] for tid in order[: len(order) if count < 0 else count] if tid != token)]


def assert_rows_close(got: Any, wanted: list[tuple[int, float, int]]) -> None:
    assert [(tid, rank) for tid, _, rank in got] == [(tid, rank) for tid, _, rank in wanted]
    assert [logprob for _, logprob, _ in got] == pytest.approx([logprob for _, logprob, _ in wanted], abs=1e-4)


@pytest.mark.parametrize("count", [0, 1, 5, 20, -1])
@pytest.mark.parametrize("extra", [{}, {"temperature": 0.5, "top_k": 3}, {"logit_bias": {4: 100.0}}, {"temperature": 0}], ids=str)
def test_rows_are_of_the_raw_logits(count: int, extra: dict[str, Any]) -> None:
    """Neither temperature nor bias shows in a row; the sampled token leads it."""
    rows = logits(7, 3)
    results = sample(rows, [choice(seed=1), choice(seed=2, logprobs=count, **extra), choice(seed=3, logprobs=2)])
    assert results[0].rows is None
    for number, asked in ((1, count), (2, 2)):
        token, (row,) = results[number].token_ids[0], results[number].rows or []
        assert_rows_close(row, reference_row(rows[number], token, asked))


def test_a_row_has_k_entries_or_one_more() -> None:
    row = logits(8)
    best = torch.argsort(row[0], descending=True).tolist()
    for token, size in ((best[0], 3), (best[2], 3), (best[3], 4), (best[-1], 4)):
        (got,) = sample(row, [choice(allowed_token_ids=(token,), logprobs=3)])[0].rows or []
        assert len(got) == size
        assert got[0][0] == token


def test_listed_ids_take_the_place_of_the_best() -> None:
    row = logits(9)
    result = sample(row, [choice(seed=1, logprob_token_ids=(4, 500, 9))])[0]
    token, (got,) = result.token_ids[0], result.rows or []
    whole = {tid: (tid, logprob, rank) for tid, logprob, rank in reference_row(row[0], token, -1)}
    assert_rows_close(got, [whole[tid] for tid in (token, 4, 500, 9)])
