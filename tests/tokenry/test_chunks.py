from __future__ import annotations

from inference.protocol.codec import encode
from tokenry.fleet.chunks import decode_chunk, merge


def chunk(index, ids, finish=None, logprobs=None, **more):
    choice = {"index": index, "token_ids": ids, "finish_reason": finish, "logprobs": logprobs}
    return decode_chunk(encode({"request_id": "r", "choices": [choice], **more}))


def lp(*ids):
    return {"content": [{"token_id": i, "logprob": -1.0, "rank": 1, "top_logprobs": []} for i in ids]}


def test_one_chunk_passes_as_it_is():
    only = chunk(0, [1])
    assert list(merge([only])) == [only]


def test_chunks_of_one_choice_become_one():
    merged = list(merge([chunk(0, [1], logprobs=lp(1)), chunk(0, [2], logprobs=lp(2)), chunk(0, [], "length")]))
    assert len(merged) == 1
    choice = merged[0].choices[0]
    assert (choice.token_ids, choice.finish_reason) == ([1, 2], "length")
    assert [entry.token_id for entry in choice.logprobs.content] == [1, 2]


def test_choices_stay_apart():
    merged = list(merge([chunk(0, [1]), chunk(1, [5]), chunk(0, [2])]))
    assert [(c.choices[0].index, c.choices[0].token_ids) for c in merged] == [(0, [1, 2]), (1, [5])]


def test_a_chunk_without_choices_comes_after_what_came_before_it():
    usage = decode_chunk(b'{"request_id": "r", "choices": [], "usage": {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1}}')
    merged = list(merge([chunk(0, [1]), chunk(0, [2]), usage]))
    assert [len(c.choices) for c in merged] == [1, 0]
    assert merged[0].choices[0].token_ids == [1, 2]
