"""Matrix products with fixed weights. On a CPU the weights are packed once, which decides the speed at few rows.

Measured on two AVX-512 cores, float32, all products of SmolLM2-135M at 8, 32 and 256 rows: 33, 46 and 200 ms by torch, 22, 38 and 188
packed for oneDNN, 14, 26 and 179 by our own kernel. oneDNN's operators carry an underscore, so this file is the only one that knows them,
checks them once, and does without.
"""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine.native import native_for

PACK_HINT = 32  # rows that oneDNN's packed layout is tuned for; any number may be given


class Linear:
    """y = x W^T + b, for x [rows, inputs]. `add` is added to the result (a residual), in the same pass where that is possible."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.outputs = len(weight)
        self.bias = bias
        self.native = native_for(weight.dtype, weight.device)
        self.packed = self.native is None and weight.device.type == "cpu" and packing_works(weight.dtype)
        if self.native is not None:
            self.weight = self.native.pack(weight)
        else:
            self.weight = pack(weight) if self.packed else weight.contiguous()

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        if self.native is not None:
            return self.native.linear(x, self.weight, self.outputs, self.bias, add)
        if self.packed:
            return packed_product(x, self.weight, self.bias, add)
        y = functional.linear(x, self.weight, self.bias)
        return y if add is None else y.add_(add)


def pack(weight: Tensor) -> Tensor:
    return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_HINT))


def packed_product(x: Tensor, weight: Tensor, bias: Tensor | None, add: Tensor | None) -> Tensor:
    if add is None:
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise.binary(x, add, weight, bias, "add"))


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether the operators are there and right, tried on a small product. float32 alone: other types are not faster packed."""
    if dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    try:
        weight, x, add = torch.randn(24, 16), torch.randn(5, 16), torch.randn(5, 24)
        result = packed_product(x, pack(weight), None, add)
        return torch.allclose(result, functional.linear(x, weight) + add, atol=1e-4)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
