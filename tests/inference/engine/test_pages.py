"""The parts of the CUDA path that need no device: the layout of a step over pages, and the fixed-size batch that graphs replay."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.engine import graphs, paged_attention
from inference.engine.engine import Engine
from inference.engine.graphs import GraphRunner, StaticBatch
from inference.engine.kv import KvShape
from inference.engine.paged_attention import Layout, PagedBatch, gathered, paged_batch, write
from inference.engine.pages import PAGE, SCRATCH, PagedStore
from inference.engine.request import Request, Sequence
from inference.engine.scheduler import Plan, Work
from tests.inference.engine.running import Answers, prompt, request, run

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


def test_a_store_takes_memory_as_it_fills() -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc")
    before = int(statm.read_text().split()[1])
    memory = store(1 << 22)
    assert memory.pool.nbytes > 1 << 30
    assert (int(statm.read_text().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE") < 1 << 28


@pytest.mark.parametrize("kv", ["auto", "pages"])
def test_what_was_never_written_is_never_read(kv: str, engine_on: Callable[..., Engine]) -> None:
    sound, poisoned = engine_on(kv=kv), engine_on(kv=kv)
    memory: Any = poisoned.scheduler.memory
    if isinstance(memory, PagedStore):  # without our own kernels, `auto` is rows on a CPU
        memory.pool.fill_(float("nan"))
    expected = crowd(sound)
    assert {name: answer.tokens for name, answer in crowd(poisoned).items()} == {name: answer.tokens for name, answer in expected.items()}


class Recomputed:
    """In the place of a captured graph: the same batch of fixed size, filled in the same way, and computed anew."""

    def __init__(self, runner: Any, memory: PagedStore, size: int, pool: Any) -> None:
        self.runner = runner
        self.batch = StaticBatch(memory, size)

    def replay(self, batch: PagedBatch) -> Tensor:
        self.batch.fill(batch)
        logits: Tensor = self.runner.logits(self.batch)
        return logits


def by_layout(query: Tensor, storage: Tensor, layout: Layout, longest_query: int, longest: int, scale: float) -> Tensor:
    """What the flash kernel is given, read as it reads it."""
    counts = layout.starts.diff().tolist()
    return gathered(query, storage, list(zip(counts, layout.lengths.tolist(), strict=True)), layout, scale)


@pytest.fixture
def with_graphs(engine_on: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Engine]:
    """An engine that decodes as on CUDA, but for what only a device can do: the kernel and the capture."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(graphs, "Captured", Recomputed)
    for module in (graphs, paged_attention):
        monkeypatch.setattr(module, "flash", by_layout)
    monkeypatch.setattr(paged_attention, "HALVES", (torch.float32,))
    monkeypatch.setattr(paged_attention, "flash_works", lambda *_: True)

    def build(**settings: Any) -> Engine:
        engine = engine_on(kv="pages", **settings)
        executor: Any = engine.executor
        executor.runner = GraphRunner(executor.runner, executor.batch_of.keywords["store"], max_rows=32)
        return engine

    return build


def crowd(engine: Engine) -> dict[str, Answers]:
    """Prompts of all lengths, also of a single token, with logprobs of every kind."""
    lengths = (1, 2, 3, 9, 20, 33, 70, 255, 256, 300)
    asked = [{"logprobs": 2}, {"prompt_logprobs": 1}, {}, {"n": 2}, {"logprobs": 0, "prompt_logprobs": 0}]
    work = [request(f"r{n}", prompt(n), seed=n, max_tokens=5 + n % 7, **asked[k % 5]) for k, n in enumerate(lengths)]
    one, beside = request("one", [7], prompt_logprobs=2, max_tokens=8, seed=1), request("beside", prompt(40), prompt_logprobs=1, seed=2)
    return run(engine, one, beside, *work)


@pytest.mark.parametrize("chunk", [1, 2, 64])
@pytest.mark.parametrize("runner", ["fused", "generic"])
def test_replayed_steps_are_those_that_are_not(
    runner: str, chunk: int, engine_on: Callable[..., Engine], with_graphs: Callable[..., Engine]
) -> None:
    """Also where a piece of a prompt is a single token, as a decoding row's step is."""
    settings = {"runner": runner, "prefill_chunk": chunk, "prefill_chunk_idle": chunk}
    expected = crowd(engine_on(kv="pages", **settings))
    replaying = with_graphs(**settings)
    answers = crowd(replaying)
    executor: Any = replaying.executor
    assert len(executor.runner.captured) > 1
    for name, answer in answers.items():
        assert answer.choices.keys() == expected[name].choices.keys()
        assert all(choice.tokens == expected[name].choices[index].tokens for index, choice in answer.choices.items())
        assert ids_of(answer.prompt_rows) == ids_of(expected[name].prompt_rows)
        assert ids_of(answer.choices[0].rows) == ids_of(expected[name].choices[0].rows)


def ids_of(rows: Any) -> Any:
    return rows and [row and [tid for tid, _, _ in row] for row in rows]


def test_a_model_that_cannot_be_captured_runs_without(with_graphs: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "Captured", refuse)
    answers = crowd(with_graphs())
    assert all(answer.error is None for answer in answers.values())
