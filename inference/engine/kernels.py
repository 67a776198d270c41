"""What the fused forward does between its products: our own kernels where there are any, torch's operations everywhere else."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine.native import native_for


class Kernels(Protocol):
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Over the last dimension."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[rows, 2 * size] to [rows, size]: silu of the first half, times the second."""

    def rotate(self, heads: Tensor, rotation: Tensor, positions: Tensor) -> None:
        """In place: neighbouring dimensions of [tokens, heads, dim] as complex numbers, times rotation[position], [length, 1, dim / 2]."""


class TorchKernels:
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return functional.silu(gate).mul_(up)

    def rotate(self, heads: Tensor, rotation: Tensor, positions: Tensor) -> None:
        """Other types than float32 pass through it."""
        pairs, turns = heads.unflatten(-1, (-1, 2)), rotation[positions]
        if heads.dtype == torch.float32:
            torch.view_as_complex(pairs).mul_(turns)
        else:
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()) * turns))


def kernels_for(dtype: torch.dtype, device: torch.device) -> Kernels:
    own = native_for(dtype, device)
    return TorchKernels() if own is None else own
