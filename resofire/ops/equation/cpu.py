"""A compiled equation on the CPU: memory, plan and threads around the kernels of `emit`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..neuron_scan import chunk_rows, padded, simd
from ..neuron_scan.cpu import flat, number_type, past_cache, plan_of, run, widened, with_whole_rows
from ..surrogate import surrogate_from
from . import emit_recurrent
from .adjoint import adjoint
from .emit import backward_source, compiled, forward_source
from .graph import Program

# More states than these do not fit into the registers twice.
MANY_STATES = 3
# Kernels by program, size of numbers and surrogate: making their source takes longer than a short call.
_kernels: dict[tuple[Any, ...], Any] = {}


class Inputs(NamedTuple):
    """The tensors that both passes read."""

    current: Tensor  # [B, T, N], or [1, S, N] when packed
    coefficients: Tensor  # [K, N]
    cu_seqlens: Tensor | None


def forward(
    program: Program, owner: str, inputs: Inputs, state: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, final state [S, B, N] and checkpoints [S, rows, padded N] of a call."""
    current, coefficients, cu_seqlens = inputs
    lanes = current.shape[2]
    pitch = padded(lanes)
    plan, shares = plan_of(owner, current, cu_seqlens)
    spikes = torch.empty_like(current)
    checkpoints = state.new_empty((state.shape[0], chunk_rows(current, cu_seqlens), pitch))
    # Padding lanes and rows between packed sequences are never written, and outputs must not expose old memory.
    (checkpoints[..., lanes:] if cu_seqlens is None else checkpoints).zero_()
    running = widened(state, pitch)
    if current.numel():
        source, at = flat(current)
        out, out_at = flat(spikes)
        kernel = forward_kernel(program, current.element_size())
        run(
            kernel, plan, shares, lanes, source, at, out, out_at, past_cache(spikes),
            widened(coefficients, pitch).view(-1).numpy(), pitch, running.view(-1).numpy(),
            checkpoints.view(-1).numpy(), reverse,
        )  # fmt: skip
    return spikes, running[..., :lanes].clone(), checkpoints


def backward(
    program: Program, owner: str, inputs: Inputs, *, checkpoints: Tensor, grads: tuple[Tensor | None, Tensor | None],
    trained: Sequence[bool], surrogate: tuple[str, list[float]], reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of current, coefficients (0 where one is not `trained`) and initial state."""
    current, coefficients, cu_seqlens = inputs
    lanes = current.shape[2]
    pitch = padded(lanes)
    plan, shares = plan_of(owner, current, cu_seqlens)
    sequences, states = len(plan), checkpoints.shape[0]
    grad_current = torch.empty_like(current)
    grad_state = current.new_zeros((states, sequences, lanes)) if grads[1] is None else grads[1]
    running = widened(grad_state, pitch)
    sums = np.zeros((max(1, coefficients.shape[0]), sequences, pitch))
    if current.numel():
        # A missing gradient is a single zero, expanded.
        grad_spikes = current.new_zeros(1).expand(current.shape) if grads[0] is None else grads[0]
        source, at = flat(current)
        pull, pull_at = flat(with_whole_rows(grad_spikes.to(current.dtype)))
        out, out_at = flat(grad_current)
        kernel = backward_kernel(program, current.element_size(), surrogate, trained)
        run(
            kernel, plan, shares, lanes, source, at, pull, pull_at, 0.0, out, out_at, past_cache(grad_current),
            widened(coefficients, pitch).view(-1).numpy(), pitch, checkpoints.contiguous().view(-1).numpy(),
            tuple(map(number_type(current.dtype), surrogate[1])), running.view(-1).numpy(), sums.reshape(-1), reverse,
        )  # fmt: skip
    total = np.ascontiguousarray(sums.sum(1)[: coefficients.shape[0], :lanes])
    return grad_current, torch.from_numpy(total).to(coefficients.dtype), running[..., :lanes].clone()


def forward_kernel(program: Program, itemsize: int, block: bool = False) -> Any:
    """The compiled forward pass for numbers of `itemsize` bytes; see `emit.forward_source`."""
    place = (program.key, itemsize, block)
    if place not in _kernels:
        _kernels[place] = compiled(forward_source(program, block), itemsize, _vector_bytes(program))
    return _kernels[place]


def backward_kernel(
    program: Program, itemsize: int, surrogate: tuple[str, list[float]], trained: Sequence[bool], block: bool = False
) -> Any:
    """The compiled backward pass; see `emit.backward_source`."""
    place = (program.key, itemsize, block, surrogate[0], tuple(trained))
    if place not in _kernels:
        form: Any = surrogate_from(*surrogate)
        source = backward_source(program, adjoint(program), _names(program, trained), form.vector, block)
        _kernels[place] = compiled(source, itemsize, _vector_bytes(program), form.numba)
    return _kernels[place]


def recurrent_forward_kernel(program: Program, itemsize: int) -> Any:
    """The compiled forward pass of a layer with feedback; see `emit_recurrent`."""
    place = ("recurrent", program.key, itemsize)
    if place not in _kernels:
        _kernels[place] = compiled(emit_recurrent.forward_source(program), itemsize)
    return _kernels[place]


def recurrent_backward_kernel(
    program: Program, itemsize: int, surrogate: tuple[str, list[float]], trained: Sequence[bool]
) -> Any:
    """The compiled backward pass of a layer with feedback."""
    place = ("recurrent", program.key, itemsize, surrogate[0], tuple(trained))
    if place not in _kernels:
        form: Any = surrogate_from(*surrogate)
        source = emit_recurrent.backward_source(program, adjoint(program), _names(program, trained), form.vector)
        _kernels[place] = compiled(source, itemsize, slope=form.numba)
    return _kernels[place]


def _vector_bytes(program: Program) -> int:
    """The size of its vectors: with many states, two registers for each would be more than there are."""
    return simd.BYTES if len(program.states) <= MANY_STATES else simd.FEW_BYTES


def _names(program: Program, trained: Sequence[bool]) -> list[str]:
    return [name for name, needed in zip(program.coefficients, trained, strict=True) if needed]
