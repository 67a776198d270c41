"""Names of tokens and shapes of logprobs, beside what the case list has."""

from __future__ import annotations

import math

import pytest

from inference.logprobs import TokenNamer, generate_logprobs, named_prompt_logprobs, prompt_entries, prompt_logprobs
from inference.protocol.codec import encode
from inference.protocol.generate import Candidate, TokenLogprobs
from tests.inference.samples import b, model

T1, T2, SMOL = (model(name).tokenizer for name in ("R", "R2", "smollm2"))


def entry(token_id: int, *others: int) -> TokenLogprobs:
    tops = [Candidate(token_id=i, logprob=-0.5, rank=1) for i in (token_id, *others)]
    return TokenLogprobs(token_id=token_id, logprob=-0.5, rank=1, top_logprobs=tops)


def test_f12_rows_keep_the_engines_order() -> None:
    made = generate_logprobs([65], [[(65, -4.0, 7), (66, -0.5, 1), (67, -1.0, 2)]]).content
    assert made is not None
    assert (made[0].token_id, made[0].logprob, made[0].rank) == (65, -4.0, 7)
    assert [(c.token_id, c.rank) for c in made[0].top_logprobs] == [(65, 7), (66, 1), (67, 2)]


def test_f13_no_nan_and_no_infinity_goes_out() -> None:
    made = generate_logprobs([65], [[(65, math.nan, 0), (66, -math.inf, 2), (67, -10_000.0, 3)]])
    assert encode(made) == (
        b'{"content":[{"token_id":65,"logprob":-9999.0,"rank":null,"top_logprobs":[{"token_id":65,"logprob":-9999.0,"rank":null},'
        b'{"token_id":66,"logprob":-9999.0,"rank":2},{"token_id":67,"logprob":-9999.0,"rank":3}]}]}')


@pytest.mark.parametrize("row", [[], [(66, -0.5, 1)]])
def test_a_token_without_an_entry(row: list[tuple[int, float, int | None]]) -> None:
    made = generate_logprobs([65], [row]).content
    assert made is not None
    assert (made[0].logprob, made[0].rank, made[0].top_logprobs) == (-9999.0, None, [])


def test_candidates_share_the_sampled_context() -> None:
    """They are alternatives of one another: what is named beside a token never counts as what came before it."""
    namer = TokenNamer(T1, as_ids=False, keep=None)
    made = namer.chat([entry(195, 240), entry(169, 170, 65, 152)]).content
    assert made is not None
    assert [top.token for top in made[1].top_logprobs] == ["é", "ê", "A", "\u00d8"]


def test_a_token_that_begins_with_a_space_keeps_it_with_its_character() -> None:
    """SmolLM2 writes a space and the first byte of an emoji as one token."""
    ids = SMOL.encode(" 🎉", add_special_tokens=False)
    made = TokenNamer(SMOL, as_ids=False, keep=0).chat([entry(i) for i in ids]).content
    assert made is not None
    assert [e.token for e in made] == [*[""] * (len(ids) - 1), " 🎉"]
    assert made[-1].bytes == tuple(" 🎉".encode())


def test_context_is_the_last_four_ids() -> None:
    namer = TokenNamer(T1, as_ids=False, keep=None)
    namer.pass_by([1, 2, 3])
    namer.pass_by([])
    namer.pass_by([4, 5])
    assert namer.context == [2, 3, 4, 5]


def test_context_reaches_over_chunks_of_any_size() -> None:
    ids = b("😀")
    namer = TokenNamer(T1, as_ids=False, keep=None)
    tokens = []
    for token_id in ids:
        made = namer.chat([entry(token_id)]).content
        assert made is not None
        tokens.append(made[0].token)
        namer.pass_by([token_id])
    assert tokens == ["", "", "", "😀"]


def test_byte_fallback_pieces() -> None:
    made = TokenNamer(T2, as_ids=False, keep=None).chat([entry(268), entry(198), entry(172, 173)]).content
    assert made is not None
    assert [e.token for e in made] == [" Hello", "", "é"]
    assert [t.token for t in made[2].top_logprobs] == ["é", "ê"]


def test_distinct_ids_of_one_name_collapse_and_the_last_stays() -> None:
    tops = [Candidate(token_id=i, logprob=-float(i), rank=1) for i in (195, 196)]
    made = TokenNamer(T1, as_ids=False, keep=None).completion([TokenLogprobs(token_id=195, logprob=-1.0, top_logprobs=tops)])
    assert made.top_logprobs == [{"": -196.0}]


def test_a_position_whose_candidates_were_all_cut_is_an_empty_object() -> None:
    made = TokenNamer(T1, as_ids=False, keep=0).completion([entry(65), TokenLogprobs(token_id=66, logprob=-9999.0)])
    assert (made.top_logprobs, made.token_logprobs) == ([{}, None], [-0.5, -9999.0])


def test_prompt_logprobs_go_by_id_and_get_their_names_later() -> None:
    rows = prompt_logprobs([None, [(169, -0.5, 1), (65, math.nan, 0)]])
    ranked, unranked = ({"logprob": value, "rank": rank, "decoded_token": None} for value, rank in ((-0.5, 1), (-9999.0, None)))
    assert rows == [None, {"169": ranked, "65": unranked}]
    named = named_prompt_logprobs(rows, [195, 169], T1)
    assert named[1] is not None
    assert [entry["decoded_token"] for entry in named[1].values()] == ["é", "A"]


def test_prompt_entries_for_an_echo() -> None:
    rows = prompt_logprobs([None, [(169, -0.5, 1)], [(66, -0.1, 1)]])
    first, second, third = prompt_entries(rows, [195, 169, 65])
    assert first is None
    assert second is not None
    assert third is not None
    assert (second.logprob, third.logprob, third.rank, len(third.top_logprobs)) == (-0.5, -9999.0, None, 1)
