"""The engine's own kernels for float32 on a CPU (`native.c`), compiled for this machine the first time that an engine starts.

Without a C compiler, or where a trial shows that the result is not right, there are none, and torch's operations do the work. They share
torch's OpenMP threads, which must be so: two sets of threads that wait for each other on the same cores take many times as long.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("native.c")
# Of what -ffast-math stands for only this: the rest loses infinities, or changes how the whole process computes.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-fopenmp", "-fPIC")
SECONDS = 120
SWITCH = "TOKENRY_KERNELS"  # `torch`: do without

INT, FLOAT, POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
SIGNATURES = {
    "pack": [POINTER] * 2 + [INT] * 2,
    "linear": [POINTER, INT, POINTER, POINTER, POINTER, INT, POINTER, INT, INT, INT],
    "rms_norm": [POINTER, INT, POINTER, POINTER, INT, INT, FLOAT],
    "silu_mul": [POINTER] * 2 + [INT] * 2,
    "rotate": [POINTER, INT, POINTER, POINTER, INT, INT, INT],
    "highest": [POINTER, INT, POINTER, POINTER, INT, INT],
    "largest": [POINTER, INT, POINTER, POINTER, INT, INT, INT],
    "log_sums": [POINTER, INT, POINTER, POINTER, INT, INT],
    "count_above": [POINTER, INT, POINTER, POINTER, INT, INT],
    "weigh": [POINTER, INT, POINTER, POINTER, POINTER, POINTER, INT, INT],
    "draw": [POINTER] * 5 + [INT] * 3,
    "attend_pages": [POINTER, INT, POINTER, INT, INT, POINTER, INT, POINTER, POINTER, POINTER, INT, INT, INT, INT, INT, FLOAT],
    "decode_layers": [POINTER, POINTER, POINTER, INT, INT, INT, POINTER, INT, POINTER, POINTER, POINTER, INT, POINTER, INT],
}
LAYER = ("input_norm", "qkv", "qkv_bias", "query_norm", "key_norm", "out", "out_bias", "post_norm", "gate_up", "gate_up_bias", "down",
         "down_bias")  # fmt: skip
SHAPE = ("layers", "hidden", "heads", "kv_heads", "dim", "inner")
HEAD_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 16)  # vectors of a head that attention knows


class Native:
    """Tensors are float32 on the CPU, with their last dimension in one piece; positions and lengths are int64."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name in ("panel_columns", "threads", "vector_lanes", "use_tiles"):
            getattr(library, name).restype = INT
        for name, arguments in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None
        self._library = library
        self._columns: int = library.panel_columns()
        self._lanes: int = library.vector_lanes()
        library.use_tiles()

    def threads(self) -> int:
        return int(self._library.threads())

    def pack(self, weight: Tensor) -> Tensor:
        """[outputs, inputs] as `linear` reads it."""
        outputs, inputs = weight.shape
        weight = weight.contiguous()
        packed = torch.empty(-(-outputs // self._columns) * self._columns * inputs)
        assert packed.data_ptr() % 64 == 0
        self._library.pack(weight.data_ptr(), packed.data_ptr(), outputs, inputs)
        return packed

    def linear(self, x: Tensor, packed: Tensor, outputs: int, bias: Tensor | None, add: Tensor | None) -> Tensor:
        """x [rows, inputs] times the packed weight, plus the bias [outputs], plus `add` [rows, outputs]."""
        x = rows_in_one_piece(x)
        rows, inputs = x.shape
        y = torch.empty(rows, outputs)
        added, stride = (None, 0) if add is None else (add.data_ptr(), add.stride(0))
        bias_at = None if bias is None else bias.data_ptr()
        self._library.linear(x.data_ptr(), x.stride(0), packed.data_ptr(), bias_at, added, stride, y.data_ptr(), rows, outputs, inputs)
        return y

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """[rows, size]"""
        y = torch.empty(x.shape)
        self._library.rms_norm(x.data_ptr(), x.stride(0), weight.data_ptr(), y.data_ptr(), len(x), x.shape[1], eps)
        return y

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[rows, 2 * size] to [rows, size]: silu of the first half, times the second."""
        rows, size = len(gate_up), gate_up.shape[1] // 2
        y = torch.empty(rows, size)
        self._library.silu_mul(gate_up.data_ptr(), y.data_ptr(), rows, size)
        return y

    def rotate(self, heads: Tensor, rotation: Tensor, positions: Tensor) -> None:
        """In place: neighbouring dimensions of [tokens, heads, dim] as complex numbers, times rotation[position], [length, 1, dim / 2]."""
        tokens, count, dim = heads.shape
        self._library.rotate(heads.data_ptr(), heads.stride(0), rotation.data_ptr(), positions.data_ptr(), tokens, count, dim)

    def attends(self, dim: int) -> bool:
        """Whether `attend_pages` and `decode_layers` take heads of this size."""
        return dim % self._lanes == 0 and dim // self._lanes in HEAD_WIDTHS

    def attend_pages(self, query: Tensor, storage: Tensor, rows: PagedRows, scale: float) -> Tensor:
        """Each row's query [rows, heads, dim] attends to the row's keys and values in `storage` [2, pages, page, kv_heads, dim]."""
        query = rows_in_one_piece(query)
        count, heads, dim = query.shape
        page, kv_heads = storage.shape[2:4]
        group = heads // kv_heads
        out, scratch = torch.empty(count, heads, dim), torch.empty(torch.get_num_threads() * group * rows.longest)
        self._library.attend_pages(
            query.data_ptr(), query.stride(0), storage.data_ptr(), storage.stride(0), page, rows.table.data_ptr(), rows.table.shape[1],
            rows.lengths.data_ptr(), out.data_ptr(), scratch.data_ptr(), group * rows.longest, count, kv_heads, group, dim, scale,
        )  # fmt: skip
        return out

    def highest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, 1] and [rows]: each row's highest number, not a number if one of them is none, and where it is first."""
        x = rows_in_one_piece(x)
        best, at = torch.empty(len(x), 1), torch.empty(len(x), dtype=torch.int64)
        self._library.highest(x.data_ptr(), x.stride(0), best.data_ptr(), at.data_ptr(), len(x), x.shape[1])
        return best, at

    def largest(self, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` highest of each row in order [rows, count], and where they are; as many must be there."""
        x = rows_in_one_piece(x)
        values, at = torch.empty(len(x), count), torch.empty(len(x), count, dtype=torch.int64)
        self._library.largest(x.data_ptr(), x.stride(0), values.data_ptr(), at.data_ptr(), len(x), x.shape[1], count)
        return values, at

    def log_sums(self, x: Tensor) -> Tensor:
        """[rows, 1]: the logarithm of the sum of the exponentials of each row, which holds a finite number."""
        x = rows_in_one_piece(x)
        best, sums = self.highest(x)[0], torch.empty(len(x), 1)
        self._library.log_sums(x.data_ptr(), x.stride(0), best.data_ptr(), sums.data_ptr(), len(x), x.shape[1])
        return sums

    def count_above(self, x: Tensor, one: Tensor) -> Tensor:
        """[rows]: how many numbers of each row of x are above the row's of `one` [rows, 1]."""
        x, one = rows_in_one_piece(x), one.contiguous()
        counts = torch.empty(len(x), dtype=torch.int64)
        self._library.count_above(x.data_ptr(), x.stride(0), one.data_ptr(), counts.data_ptr(), len(x), x.shape[1])
        return counts

    def weigh(self, x: Tensor, best: Tensor, temperature: Tensor, min_p: Tensor) -> Tensor:
        """exp((x - best) / temperature) of each row, 0 where that is below min_p. The last three are [rows, 1], the last two float64."""
        x, best, temperature, min_p = rows_in_one_piece(x), best.contiguous(), temperature.contiguous(), min_p.contiguous()
        weights = torch.empty(x.shape)
        self._library.weigh(
            x.data_ptr(), x.stride(0), best.data_ptr(), temperature.data_ptr(), min_p.data_ptr(), weights.data_ptr(), len(x), x.shape[1]
        )
        return weights

    def draw(self, weights: Tensor, uniform: Tensor, top_p: Tensor | None, rounds: int = 1) -> tuple[Tensor, Tensor]:
        """[rows] tokens where the cumulative weight passes `uniform` of the total, and [rows] whether they lie in the nucleus: whether what
        weighs more is less than top_p of the total. Those that do not are drawn again, `rounds` times in all.

        weights: [rows, vocabulary], not negative. uniform, top_p: [rows, 1] float64; without top_p the second answer says nothing.
        """
        weights, uniform, top_p = weights.contiguous(), uniform.contiguous(), None if top_p is None else top_p.contiguous()
        rows, size = weights.shape
        tokens, kept = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.bool)
        bound = None if top_p is None else top_p.data_ptr()
        self._library.draw(weights.data_ptr(), uniform.data_ptr(), bound, tokens.data_ptr(), kept.data_ptr(), rows, size, rounds)
        return tokens, kept

    def decode_layers(self, stack: Stack, hidden: Tensor, positions: Tensor, pool: Tensor, rows: PagedRows) -> None:
        """One token of every row through all layers, in place in `hidden` [rows, hidden]; its keys and values go to the end of its pages.

        `pool`: [layers, 2, pages, page, kv_heads, dim].
        """
        scores = stack.group * rows.longest
        scratch = torch.empty(len(hidden) * stack.scratch_size + torch.get_num_threads() * scores)
        self._library.decode_layers(
            stack.layers, ctypes.byref(stack.shape), pool.data_ptr(), pool.stride(0), pool.stride(1), pool.shape[3], rows.table.data_ptr(),
            rows.table.shape[1], rows.lengths.data_ptr(), positions.data_ptr(), hidden.data_ptr(), len(hidden), scratch.data_ptr(), scores,
        )  # fmt: skip


@dataclass
class PagedRows:
    """Where the keys and values of some rows are: `table` [rows, pages] int32, `lengths` [rows] int64, none above `longest`."""

    table: Tensor
    lengths: Tensor
    longest: int

    @classmethod
    def of(cls, places: Sequence[Sequence[int]], lengths: Sequence[int]) -> PagedRows:
        width = max(map(len, places))
        table = [[*pages, *[0] * (width - len(pages))] for pages in places]
        return cls(torch.tensor(table, dtype=torch.int32), torch.tensor(lengths), max(lengths))


class LayerWeights(ctypes.Structure):
    """Addresses of one layer's packed products, biases and norms, as the C file names them; 0 where there is none."""

    _fields_ = [(name, POINTER) for name in LAYER]


class StackShape(ctypes.Structure):
    _fields_ = [*((name, INT) for name in SHAPE), ("eps", FLOAT), ("scale", FLOAT), ("rotation", POINTER)]


class Stack:
    """All layers of a model for `decode_layers`. It keeps the tensors that it is made of."""

    def __init__(self, layers: Sequence[Mapping[str, Tensor | None]], rotation: Tensor, *, eps: float, scale: float, **sizes: int) -> None:
        self.kept = (layers, rotation)
        addresses = [[0 if layer[name] is None else layer[name].data_ptr() for name in LAYER] for layer in layers]  # type: ignore[union-attr]
        self.layers = (LayerWeights * len(layers))(*(LayerWeights(*each) for each in addresses))
        self.shape = StackShape(layers=len(layers), eps=eps, scale=scale, rotation=rotation.data_ptr(), **sizes)
        shape = self.shape
        self.group = shape.heads // shape.kv_heads
        self.scratch_size = shape.hidden + 2 * (shape.heads + shape.kv_heads) * shape.dim + 3 * shape.inner


def rows_in_one_piece(x: Tensor) -> Tensor:
    """`x`, or a copy of it, each of whose x[i] is contiguous."""
    return x if len(x) == 0 or x[0].is_contiguous() else x.contiguous()


def native_for(dtype: torch.dtype, device: torch.device) -> Native | None:
    """The kernels for tensors of that kind, if there are any."""
    return native() if dtype == torch.float32 and device.type == "cpu" else None


def attending(dtype: torch.dtype, device: torch.device, head_dim: int) -> Native | None:
    """The same, if they attend to heads of that size."""
    kernels = native_for(dtype, device)
    return kernels if kernels is not None and kernels.attends(head_dim) else None


@cache
def native() -> Native | None:
    if os.environ.get(SWITCH) == "torch":
        return None
    try:
        made = Native(ctypes.CDLL(str(compiled())))
    except (OSError, subprocess.SubprocessError) as exc:
        log.info("The engine computes with torch's own operations, which are slower; its kernels could not be compiled: %s", exc)
        return None
    fault = fault_of(made)
    if fault is not None:
        log.warning("The engine computes with torch's own operations, which are slower; its kernels are not used: %s", fault)
        return None
    return made


def compiled() -> Path:
    """The library for this source on this machine, from the last time or made now.

    Raises:
        OSError, subprocess.SubprocessError: there is no compiler, or it fails.
    """
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise OSError(f"there is no C compiler ({compiler})")
    kind = SOURCE.read_bytes() + " ".join((compiler, *FLAGS)).encode() + processor()
    name = f"native-{hashlib.sha256(kind).hexdigest()[:16]}.so"
    folder = cache_folder()
    library = folder / name
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / name
            command = [compiler, *FLAGS, "-shared", "-o", str(made), str(SOURCE), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            if done.returncode != 0:
                raise OSError(f"{compiler} said: {done.stderr.strip()[-500:]}")
            made.replace(library)
    return library


def cache_folder() -> Path:
    """Beside the source like other compiled things, or where that cannot be written a folder of this process's own."""
    folder = SOURCE.with_name("__pycache__")
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="tokenry-kernels-"))


def processor() -> bytes:
    """What a processor can do, where the system says it: a library made for another one may not run here."""
    info = Path("/proc/cpuinfo")
    lines = info.read_bytes().splitlines() if info.is_file() else []
    return b"".join(sorted({line for line in lines if line.startswith((b"flags", b"Features", b"model name"))}))


def fault_of(made: Native) -> str | None:
    """A trial: the same threads as torch, and the same results."""
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    shared = made.threads() == before + 1
    torch.set_num_threads(before)
    if not shared:
        return "their threads would not be torch's"
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    many, weight, bias, add, norm = random(200, 96), random(100, 96), random(100), random(200, 100), random(96)
    x, packed = many[:13], made.pack(weight)
    gate, up = x.chunk(2, -1)
    trials = {
        "linear": (made.linear(x, packed, 100, bias, add[:13]), functional.linear(x, weight, bias) + add[:13]),
        "linear of many rows": (made.linear(many, packed, 100, bias, add), functional.linear(many, weight, bias) + add),
        "rms_norm": (made.rms_norm(x, norm, 1e-5), functional.rms_norm(x, norm.shape, norm, 1e-5)),
        "silu_mul": (made.silu_mul(x), functional.silu(gate) * up),
    }
    wrong = [name for name, (got, expected) in trials.items() if not torch.allclose(got, expected, atol=1e-4)]
    return f"{', '.join(wrong)} computed something else" if wrong else None
