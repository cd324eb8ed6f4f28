"""The scan of both neurons on the GPU: grids, sizes and the order of launches. The kernels are in `triton.py`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import require_bounds
from ..surrogate import surrogate_from
from . import Grads, Inputs, Options, chunk_rows, padded
from .triton import BLOCK, SLOPES, backward_kernel, carry_kernel, forward_kernel, number

# With fewer programs per multiprocessor, the memory bandwidth is mostly unused.
PROGRAMS_PER_PROCESSOR = 4
# Set by tests; None lets `time_parallel` decide.
force_time_parallel: bool | None = None


def time_parallel(sequences: int, blocks: int, rows: int, processors: int) -> bool:
    """Whether to run all chunks in parallel: too few sequences and lanes to fill the device, and long enough to pay
    for three passes. Depends on shapes alone."""
    return sequences * blocks < PROGRAMS_PER_PROCESSOR * processors and rows >= 8 * sequences


class _Plan:
    """Common arguments of a call's kernels: grids, sizes, and whether to run all chunks in parallel."""

    def __init__(self, inputs: Inputs, reset: str) -> None:
        current, _, cu_seqlens = inputs
        batch, length, lanes = current.shape
        if cu_seqlens is not None:
            if cu_seqlens.device.type == "cpu":
                require_bounds("prf" if inputs.resonant else "lif", cu_seqlens.tolist(), length)
            cu_seqlens, batch = cu_seqlens.to(current.device).contiguous(), cu_seqlens.shape[0] - 1
        self.rows, self.pitch, blocks = chunk_rows(current, cu_seqlens), padded(lanes), -(-lanes // BLOCK)
        self.empty = current.numel() == 0 or batch == 0
        self.by_sequence, self.by_chunk = (batch, blocks), (self.rows, blocks)
        self.sizes = (cu_seqlens, length, lanes, batch, self.rows, self.pitch)
        self.options: dict[str, Any] = {"RESONANT": inputs.resonant, "BLOCK": BLOCK, "num_warps": 1}
        processors = 0
        if current.is_cuda:
            processors = torch.cuda.get_device_properties(current.device).multi_processor_count
        few = time_parallel(batch, blocks, self.rows, processors)
        self.parallel = reset == "none" and (few if force_time_parallel is None else force_time_parallel)


@contextmanager
def _launching(current: Tensor) -> Iterator[None]:
    # Triton's interpreter computes in numpy, which would warn about NaN and infinity; a GPU does not.
    with torch.cuda.device_of(current), np.errstate(all="ignore"):
        yield


def forward(inputs: Inputs, state: Tensor, settings: Options) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, final state and checkpoints [C', rows, padded N] of a call; see the package for the shapes."""
    current, coefficients, cu_seqlens = inputs
    plan = _Plan(inputs, settings.reset)
    spikes = torch.empty_like(current)
    # Packed sequences leave rows unused. They are zeroed so that the same call gives the same bits.
    new = state.new_empty if cu_seqlens is None else state.new_zeros
    checkpoints = new((state.shape[0], plan.rows, plan.pitch))
    if plan.empty:
        return spikes, state.clone(), checkpoints
    coefficients, state = coefficients.contiguous(), state.contiguous()
    final = torch.empty_like(state)
    source, target = (current, current.stride()), (spikes, spikes.stride())
    options = {"RESET": settings.reset, "REVERSE": settings.reverse, "BY_CHUNK": plan.parallel, **plan.options}
    with _launching(current):
        if plan.parallel:
            walk, ends = forward_kernel[plan.by_chunk], torch.empty_like(checkpoints)
            walk(*source, None, None, coefficients, None, ends, None, *plan.sizes, **options)
            carry_kernel[plan.by_sequence](
                ends, checkpoints, coefficients, state, final, *plan.sizes, BACKWARD=False, **plan.options
            )
            walk(*source, *target, coefficients, checkpoints, None, None, *plan.sizes, **options)
        else:
            walk = forward_kernel[plan.by_sequence]
            walk(*source, *target, coefficients, state, final, checkpoints, *plan.sizes, **options)
    return spikes, final, checkpoints


def backward(inputs: Inputs, checkpoints: Tensor, grads: Grads, settings: Options) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of current, coefficients and initial state."""
    current, coefficients, _ = inputs
    grad_spikes, grad_state = grads
    plan, numbers = _Plan(inputs, settings.reset), list(settings.numbers)
    grad_current = torch.empty_like(current)
    if grad_state is None:
        grad_state = checkpoints.new_zeros((checkpoints.shape[0], plan.by_sequence[0], current.shape[2]))
    if plan.empty:
        return grad_current, torch.zeros_like(coefficients), grad_state.clone()
    if grad_spikes is None:
        # A missing gradient is a single zero, expanded.
        grad_spikes = current.new_zeros(1).expand(current.shape)
    coefficients, checkpoints, grad_state = coefficients.contiguous(), checkpoints.contiguous(), grad_state.contiguous()
    final = torch.empty_like(grad_state)
    grid = plan.by_chunk if plan.parallel else plan.by_sequence
    sums = coefficients.new_empty((coefficients.shape[0], grid[0], current.shape[2]), dtype=torch.float64)
    source = (current, current.stride(), grad_spikes, grad_spikes.stride())
    target, rest = (grad_current, grad_current.stride()), (coefficients, checkpoints)
    options = {
        "SLOPE": surrogate_from(settings.surrogate, numbers).triton or SLOPES[settings.surrogate],
        "NUMBERS": tuple(map(number, numbers)),
        "RESET": settings.reset,
        "FULL": settings.full and settings.reset != "none",
        "REVERSE": settings.reverse,
        "BY_CHUNK": plan.parallel,
        **plan.options,
    }
    with _launching(current):
        walk = backward_kernel[grid]
        if plan.parallel:
            ends, begins = torch.empty_like(checkpoints), torch.empty_like(checkpoints)
            walk(*source, None, None, *rest, None, ends, None, *plan.sizes, **options)
            carry_kernel[plan.by_sequence](
                ends, begins, coefficients, grad_state, final, *plan.sizes, BACKWARD=True, **plan.options
            )
            walk(*source, *target, *rest, begins, None, sums, *plan.sizes, **options)
        else:
            walk(*source, *target, *rest, grad_state, final, sums, *plan.sizes, **options)
    return grad_current, sums.sum(1).to(coefficients.dtype), final
