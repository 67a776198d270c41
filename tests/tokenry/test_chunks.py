from __future__ import annotations

from inference.protocol.codec import encode
from tokenry.fleet.chunks import SEPARATE, decode_chunk, merge


def chunk(index, ids, finish=None, logprobs=None, **more):
    choice = {"index": index, "token_ids": ids, "finish_reason": finish, "logprobs": logprobs}
    return decode_chunk(encode({"request_id": "r", "choices": [choice], **more}))


def lp(*ids):
    return {"content": [{"token_id": i, "logprob": -1.0, "rank": 1, "top_logprobs": []} for i in ids]}


def merged(*chunks):
    """As if the reader had fallen behind: after as many chunks of another choice as pass unmerged."""
    ahead = [chunk(9, [0]) for _ in range(SEPARATE)]
    return [c for c in merge([*ahead, *chunks]) if not c.choices or c.choices[0].index != 9]


def test_a_reader_that_keeps_up_gets_every_chunk():
    chunks = [chunk(0, [i]) for i in range(SEPARATE)]
    assert list(merge(chunks)) == chunks


def test_chunks_of_one_choice_become_one():
    (only,) = merged(chunk(0, [1], logprobs=lp(1)), chunk(0, [2], logprobs=lp(2)), chunk(0, [], "length"))
    choice = only.choices[0]
    assert (choice.token_ids, choice.finish_reason) == ([1, 2], "length")
    assert [entry.token_id for entry in choice.logprobs.content] == [1, 2]


def test_choices_stay_apart():
    both = merged(chunk(0, [1]), chunk(1, [5]), chunk(0, [2]))
    assert [(c.choices[0].index, c.choices[0].token_ids) for c in both] == [(0, [1, 2]), (1, [5])]


def test_a_chunk_without_choices_comes_after_what_came_before_it():
    usage = decode_chunk(b'{"request_id": "r", "choices": [], "usage": {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1}}')
    both = merged(chunk(0, [1]), chunk(0, [2]), usage)
    assert [len(c.choices) for c in both] == [1, 0]
    assert both[0].choices[0].token_ids == [1, 2]
