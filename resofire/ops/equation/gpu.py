"""A compiled equation on the GPU: memory, grid and launches around the kernels of `triton`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import require_bounds
from ..neuron_scan import chunk_rows, padded
from ..neuron_scan.triton import BLOCK, SLOPES, number
from ..surrogate import surrogate_from
from .graph import Program
from .triton import DTYPES, kernels

# Products are not fused with sums, see `triton`.
EXACT: dict[str, Any] = {"num_warps": 1, "enable_fp_fusion": False}


class _Plan:
    """The grid of a call and the sizes that its kernels read."""

    def __init__(self, owner: str, current: Tensor, cu_seqlens: Tensor | None, reverse: bool) -> None:
        batch, length, lanes = current.shape
        if cu_seqlens is not None:
            if cu_seqlens.device.type == "cpu":
                require_bounds(owner, cu_seqlens.tolist(), length)
            cu_seqlens, batch = cu_seqlens.to(current.device).contiguous(), cu_seqlens.shape[0] - 1
        self.sequences, self.rows, self.pitch = batch, chunk_rows(current, cu_seqlens), padded(lanes)
        self.empty = current.numel() == 0 or batch == 0
        self.grid = (batch, -(-lanes // BLOCK))
        self.sizes = (cu_seqlens, length, lanes, batch, self.rows, self.pitch)
        self.options: dict[str, Any] = {"DTYPE": DTYPES[current.dtype], "REVERSE": reverse, "BLOCK": BLOCK}


@contextmanager
def _launching(current: Tensor) -> Iterator[None]:
    # Triton's interpreter computes in numpy, which would warn about NaN and infinity; a GPU does not.
    with torch.cuda.device_of(current), np.errstate(all="ignore"):
        yield


def forward(
    program: Program, owner: str, inputs: tuple[Tensor, Tensor, Tensor | None], state: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, final state [S, B, N] and checkpoints [S, rows, padded N] of a call; as `cpu.forward`."""
    current, coefficients, cu_seqlens = inputs
    plan = _Plan(owner, current, cu_seqlens, reverse)
    spikes, final = torch.empty_like(current), state.clone()
    # Padding lanes and rows between packed sequences are never written, and outputs must not expose old memory.
    checkpoints = state.new_zeros((state.shape[0], plan.rows, plan.pitch))
    if not plan.empty:
        with _launching(current):
            kernels(program).forward[plan.grid](
                current, current.stride(), spikes, spikes.stride(), coefficients.contiguous(), state.contiguous(),
                final, checkpoints, *plan.sizes, **plan.options, **EXACT,
            )  # fmt: skip
    return spikes, final, checkpoints


def backward(
    program: Program, owner: str, inputs: tuple[Tensor, Tensor, Tensor | None], *, checkpoints: Tensor,
    grads: tuple[Tensor | None, Tensor | None], surrogate: tuple[str, list[float]], reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of current, coefficients and initial state; as `cpu.backward`."""
    current, coefficients, cu_seqlens = inputs
    plan = _Plan(owner, current, cu_seqlens, reverse)
    grad_spikes, grad_state = grads
    grad_current = torch.empty_like(current)
    if grad_state is None:
        grad_state = checkpoints.new_zeros((checkpoints.shape[0], plan.sequences, current.shape[2]))
    final = grad_state.clone(memory_format=torch.contiguous_format)
    sums = coefficients.new_zeros((coefficients.shape[0], plan.sequences, current.shape[2]), dtype=torch.float64)
    if not plan.empty:
        # A missing gradient is a single zero, expanded.
        pulled = current.new_zeros(1).expand(current.shape) if grad_spikes is None else grad_spikes
        name, numbers = surrogate
        with _launching(current):
            kernels(program).backward[plan.grid](
                current, current.stride(), pulled, pulled.stride(), grad_current, grad_current.stride(),
                coefficients.contiguous(), checkpoints.contiguous(), grad_state.contiguous(), final, sums,
                *plan.sizes, SLOPE=surrogate_from(name, numbers).triton or SLOPES[name],
                NUMBERS=tuple(map(number, numbers)), **plan.options, **EXACT,
            )  # fmt: skip
    return grad_current, sums.sum(1).to(coefficients.dtype), final
