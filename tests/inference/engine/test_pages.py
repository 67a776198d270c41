"""The parts of the CUDA path that need no device: the layout of a step over pages, and the fixed-size batch that graphs replay."""

from __future__ import annotations

import torch

from inference.engine.graphs import StaticBatch
from inference.engine.kv import KvShape
from inference.engine.paged_attention import gathered, paged_batch, write
from inference.engine.pages import PAGE, SCRATCH, PagedStore
from inference.engine.request import Request, Sequence
from inference.engine.scheduler import Plan, Work
from tests.inference.engine.running import prompt, request

SHAPE = KvShape(layers=2, kv_heads=2, head_dim=8, dtype=torch.float32, device=torch.device("cpu"))


def store(tokens: int = 8 * PAGE) -> PagedStore:
    return PagedStore(SHAPE, max_len=4 * PAGE, budget=tokens, share=True)


def opened(memory: PagedStore, length: int, computed: int) -> Sequence:
    seq = Request(request(f"r{length}", prompt(length))).choices[0]
    memory.open(seq)
    seq.computed = computed
    return seq


def test_one_description_for_decoding_rows_and_pieces_of_prompts() -> None:
    memory = store()
    short, long = opened(memory, 10, 9), opened(memory, 2 * PAGE, 2 * PAGE - 1)
    piece = opened(memory, PAGE + 20, PAGE - 2)
    batch = paged_batch(Plan(decode=[short, long], prefill=[Work(piece, 5)]), memory)
    layout = batch.layout
    assert layout.starts.tolist() == [0, 1, 2, 7]
    assert layout.lengths.tolist() == [10, 2 * PAGE, PAGE + 3]
    assert layout.table[0].tolist() == [short.place[0], SCRATCH, SCRATCH]
    assert layout.table[1].tolist() == long.place
    assert layout.slots.tolist() == [
        short.place[0] * PAGE + 9,
        long.place[1] * PAGE + PAGE - 1,
        *(piece.place[0] * PAGE + offset for offset in (PAGE - 2, PAGE - 1)),
        *(piece.place[1] * PAGE + offset for offset in (0, 1, 2)),
    ]


def test_pages_hold_what_is_written_and_attention_reads_it() -> None:
    """Against plain attention over the same keys and values."""
    memory = store()
    seq = opened(memory, PAGE + 30, 0)
    batch = paged_batch(Plan(prefill=[Work(seq, PAGE + 30)]), memory)
    query, kv = torch.randn(PAGE + 30, 4, 8), torch.randn(PAGE + 30, 2, 2, 8)
    write(memory.pool[1], kv, batch.layout.slots)
    result = gathered(query, memory.pool[1], batch.pieces, batch.layout, 0.3)
    keys, values = kv.permute(1, 2, 0, 3).repeat_interleave(2, 1)
    hidden = torch.ones(PAGE + 30, PAGE + 30).tril() == 0
    scores = (query.transpose(0, 1) @ keys.transpose(1, 2) * 0.3).masked_fill(hidden, float("-inf"))
    torch.testing.assert_close(result, (scores.softmax(-1) @ values).transpose(0, 1))


def test_a_static_batch_pads_with_rows_that_touch_only_the_scratch_page() -> None:
    memory = store()
    rows = [opened(memory, length, length - 1) for length in (10, 300, 20)]
    static = StaticBatch(memory, 4)
    static.fill(paged_batch(Plan(decode=rows), memory))
    assert static.layout.lengths.tolist() == [10, 300, 20, 1]
    static.fill(paged_batch(Plan(decode=rows[1:2]), memory))
    assert static.ids[:1].tolist() == [rows[1].ids[-1]]
    assert static.positions[:1].tolist() == [299]
    assert static.layout.lengths.tolist() == [300, 1, 1, 1]
    assert static.layout.table[0, :2].tolist() == rows[1].place
    assert static.layout.table[1:].unique().tolist() == [SCRATCH]
    assert static.layout.slots[1:].tolist() == [SCRATCH * PAGE] * 3
    assert static.layout.starts.tolist() == [0, 1, 2, 3, 4]


def test_the_scratch_page_is_never_given_away() -> None:
    memory = store(3 * PAGE)
    held = [opened(memory, PAGE - 1, 0) for _ in range(4)]
    assert sorted(page for seq in held for page in seq.place) == [1, 2, 3, 4]
    assert not memory.can_open(Request(request("more", prompt(5))).choices[0])
