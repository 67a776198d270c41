"""Our own kernels against torch's operations, and what happens where they cannot be had."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from inference.engine import native as module
from inference.engine.kernels import TorchKernels
from inference.engine.native import Native, PagedRows, native
from inference.engine.prompt_attention import attend_piece, piece_mask

CLOSE = {"atol": 2e-5, "rtol": 1e-5}
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here, so the engine has torch's operations")


@pytest.fixture(scope="module", params=[1, 2])
def kernels(request: pytest.FixtureRequest) -> Iterator[Native]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    made = native()
    assert made is not None
    yield made
    torch.set_num_threads(before)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 9, 16, 17, 33, 191, 200, 700])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (47, 5), (48, 16), (49, 33), (96, 576), (330, 1100), (30, 640)])
def test_products(kernels: Native, rows: int, outputs: int, inputs: int) -> None:
    x, weight, bias, add = random(rows, inputs, seed=1), random(outputs, inputs, seed=2), random(outputs), random(rows, outputs, seed=3)
    packed, expected = kernels.pack(weight), functional.linear(x.double(), weight.double()).float()
    torch.testing.assert_close(kernels.linear(x, packed, outputs, None, None), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(kernels.linear(x, packed, outputs, bias, add), expected + bias + add, atol=1e-4, rtol=1e-4)
    wide = torch.cat([x, x], 1)[:, :inputs]  # rows that do not lie one behind the other
    torch.testing.assert_close(kernels.linear(wide, packed, outputs, None, add), expected + add, atol=1e-4, rtol=1e-4)


def test_a_product_of_what_lies_across(kernels: Native) -> None:
    x, weight = random(33, 7), random(20, 33)
    torch.testing.assert_close(kernels.linear(x.t(), kernels.pack(weight), 20, None, None), x.t() @ weight.t(), **CLOSE)


def test_a_row_does_not_depend_on_its_company(kernels: Native) -> None:
    """Of as many rows as decode together; long prompts may go through other instructions."""
    x, weight = random(128, 576, seed=1), random(960, 576, seed=2)
    packed = kernels.pack(weight)
    together = kernels.linear(x, packed, 960, None, None)
    for rows in (1, 3, 8, 31, 127):
        assert torch.equal(kernels.linear(x[:rows].contiguous(), packed, 960, None, None), together[:rows])


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_between_products(kernels: Native, rows: int) -> None:
    torch_s = TorchKernels()
    x, weight = random(rows, 96) * 8, random(96, seed=1)
    torch.testing.assert_close(kernels.rms_norm(x, weight, 1e-5), torch_s.rms_norm(x, weight, 1e-5), **CLOSE)
    extreme = torch.cat([x, torch.tensor([[-1e30, -100.0, -87.5, -0.0, 0.0, 88.5, 1e4, 1e30] * 12])])
    torch.testing.assert_close(kernels.silu_mul(extreme), torch_s.silu_mul(extreme), atol=1e-5, rtol=1e-5)


def test_rotation(kernels: Native) -> None:
    angles = random(50, 16)
    table = torch.polar(torch.ones_like(angles), angles)[:, None]
    positions = torch.tensor([0, 49, 7, 7, 12, 30, 1, 2, 3, 4])
    ours, theirs = random(10, 5, 32), random(10, 5, 32)
    kernels.rotate(ours[:, :3], table, positions)
    TorchKernels().rotate(theirs[:, :3], table, positions)
    torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(3, 1, 16), (9, 3, 64), (4, 4, 128), (8, 2, 80), (2, 1, 256)])
@pytest.mark.parametrize("lengths", [[1], [16], [5, 128, 64], [65, 63, 2, 1, 127]])
def test_attention(kernels: Native, heads: int, kv_heads: int, dim: int, lengths: list[int]) -> None:
    pool = random(2, 2, 40, 16, kv_heads, dim)
    free = list(range(39, 0, -1))
    places = [[free.pop() for _ in range(-(-length // 16))] for length in lengths]
    rows = PagedRows.of(places, lengths)
    wide = random(len(lengths), heads + 1, dim, seed=1)
    for query in (wide[:, :heads], wide[:, :heads].transpose(0, 1).contiguous().transpose(0, 1)):
        got = kernels.attend_pages(query, pool[1], rows, dim**-0.5)
        for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
            kv = pool[1][:, place].flatten(1, 2)[:, :length]
            mask = piece_mask(1, length, kv.dtype, kv.device)
            torch.testing.assert_close(got[row], attend_piece(query[row : row + 1], kv, mask, dim**-0.5)[0], **CLOSE)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_the_highest(kernels: Native, size: int) -> None:
    x = random(6, size)
    x[1] = -7.0
    x[2, size // 2] = float("inf")
    x[3] = float("-inf")
    x[4, -1] = float("nan")
    best, at = kernels.highest(x)
    assert torch.equal(at[:4], x[:4].argmax(-1))
    torch.testing.assert_close(best, x.amax(-1, keepdim=True), equal_nan=True)
    assert torch.equal(kernels.highest(x.t().contiguous().t()[5:])[1], x[5:].argmax(-1))


@pytest.mark.parametrize(("size", "count"), [(1, 1), (70, 64), (1000, 20), (1001, 1)])
def test_the_largest(kernels: Native, size: int, count: int) -> None:
    x = random(5, size)
    x[1] = x[1].round()  # many equal ones
    x[2] = float("-inf")
    values, at = kernels.largest(x, count)
    torch.testing.assert_close(values, x.topk(count).values)
    torch.testing.assert_close(x.gather(-1, at), values)
    assert all(len(set(row)) == count for row in at.tolist())
    assert at[1].tolist() == sorted(range(size), key=lambda i: (-float(x[1, i]), i))[:count]


def test_sums_of_rows(kernels: Native) -> None:
    x = random(5, 1001) * 20
    x[1, 3:] = float("-inf")
    torch.testing.assert_close(kernels.log_sums(x), x.double().logsumexp(-1, keepdim=True).float(), atol=2e-6, rtol=1e-6)
    one = x[:, 7:8]
    assert torch.equal(kernels.count_above(x, one), (x > one).sum(-1))


def test_weights_and_draws(kernels: Native) -> None:
    x = random(6, 1001) * 3
    x[2, 5:] = float("-inf")
    knobs = torch.rand(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.01
    temperature, min_p, uniform = knobs[:, :1], knobs[:, 1:2] / 10, (knobs[:, 2:] - 0.01)
    weights = kernels.weigh(x, x.amax(-1, keepdim=True), temperature, min_p)
    expected = ((x.double() - x.double().amax(-1, keepdim=True)) / temperature).exp()
    torch.testing.assert_close(weights, torch.where(expected < min_p, 0.0, expected).float(), atol=1e-6, rtol=1e-5)
    weights[3] = 0.0
    weights[3, 900] = 0.5
    uniform[4], uniform[5] = 0.0, 1.0 - 2**-53
    tokens, kept = kernels.draw(weights, uniform, torch.full_like(uniform, 0.5))
    cumulative = weights.double().cumsum(-1)
    total = cumulative[:, -1:]
    assert tokens[:5].tolist() == torch.searchsorted(cumulative, uniform * total, right=True)[:5, 0].tolist()
    assert tokens[5] == weights[5].nonzero()[-1]
    before = torch.where(weights > weights.gather(-1, tokens[:, None]), weights.double(), 0.0).sum(-1)
    assert kept.tolist() == (before < 0.5 * total[:, 0]).tolist()
    assert kernels.draw(weights, uniform, None)[0].tolist() == tokens.tolist()


def test_a_draw_outside_the_nucleus_is_repeated(kernels: Native) -> None:
    """Half of the weight lies in the one token of the nucleus: a draw hits it every other time, and twenty in a row hardly ever miss it."""
    weights = torch.full((64, 1001), 1.0)
    weights[:, 500] = 1000.0
    uniform = torch.rand(64, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    half = torch.full_like(uniform, 0.4)
    once, often = kernels.draw(weights, uniform, half), kernels.draw(weights, uniform, half, 20)
    assert 16 < int(once[1].sum()) < 48
    assert bool(often[1].all())
    assert set(often[0].tolist()) == {500}


@pytest.fixture
def anew() -> Callable[[], Native | None]:
    """`native`, as in a process that has not asked yet."""
    return module.native.__wrapped__


def test_without_a_compiler(anew: Callable[[], Native | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert anew() is None


def test_a_compiler_that_fails(anew: Callable[[], Native | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    assert anew() is None


def test_switched_off(anew: Callable[[], Native | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.SWITCH, "torch")
    assert anew() is None


def test_a_wrong_result_is_not_used(anew: Callable[[], Native | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Native, "silu_mul", lambda self, gate_up: gate_up[:, : gate_up.shape[1] // 2])
    assert anew() is None
