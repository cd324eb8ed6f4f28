"""Compiled equations as operators of torch: schema, shapes, autograd.

An operator receives a program by its key; `register` keeps those of this process.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..neuron_scan import chunk_rows, differentiable, padded, require_like, sequences_of
from ..surrogate import refuse_forward_mode
from .graph import Program

_PROGRAMS: dict[str, tuple[Program, str]] = {}


def register(program: Program, owner: str) -> str:
    """Keep a program for the operators; returns its key."""
    _PROGRAMS.setdefault(program.key, (program, owner))
    return program.key


def registered(key: str) -> tuple[Program, str]:
    """The program of a key, and the name of its neuron.

    Raises:
        RuntimeError: This process has not run it.
    """
    if key not in _PROGRAMS:
        raise RuntimeError(f"equation: {key} is not the key of a neuron that this process has run")
    return _PROGRAMS[key]


def program_for(key: str, current: Tensor, coefficients: Tensor, cu_seqlens: Tensor | None) -> tuple[Program, str]:
    """The program of a key, for shapes that the kernels can rely on: an exported graph calls the operator directly."""
    program, owner = registered(key)
    if current.dim() != 3 or (cu_seqlens is not None and (cu_seqlens.dim() != 1 or current.shape[0] != 1)):
        raise ValueError(f"{owner}: current must be [B, T, N], or [1, S, N] when packed, got {list(current.shape)}")
    shape = (len(program.coefficients), current.shape[2])
    require_like(owner, "coefficients", coefficients, shape, current.dtype)
    return program, owner


@torch.library.custom_op("resofire::equation", mutates_args=())
def forward(
    current: Tensor,
    coefficients: Tensor,
    state: Tensor,
    cu_seqlens: Tensor | None,
    key: str,
    surrogate: str,
    numbers: Sequence[float],
    reverse: bool,
    trained: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    program, owner = program_for(key, current, coefficients, cu_seqlens)
    expected = (len(program.states), sequences_of(current, cu_seqlens), current.shape[2])
    require_like(owner, "state", state, expected, current.dtype)
    if current.is_cuda:
        from . import gpu

        return gpu.forward(program, owner, (current, coefficients, cu_seqlens), state, reverse)
    # Numba takes a while to import.
    from . import cpu

    return cpu.forward(program, owner, cpu.Inputs(current, coefficients, cu_seqlens), state, reverse)


@torch.library.custom_op("resofire::equation_backward", mutates_args=())
def backward(
    grad_spikes: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    coefficients: Tensor,
    checkpoints: Tensor,
    cu_seqlens: Tensor | None,
    key: str,
    surrogate: str,
    numbers: Sequence[float],
    reverse: bool,
    trained: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    program, owner = program_for(key, current, coefficients, cu_seqlens)
    states, lanes = len(program.states), current.shape[2]
    rows = chunk_rows(current, cu_seqlens)
    require_like(owner, "checkpoints", checkpoints, (states, rows, padded(lanes)), current.dtype)
    require_like(owner, "grad_spikes", grad_spikes, tuple(current.shape), current.dtype)
    require_like(owner, "grad_state", grad_state, (states, sequences_of(current, cu_seqlens), lanes), current.dtype)
    if current.is_cuda:
        from . import gpu

        return gpu.backward(
            program, owner, (current, coefficients, cu_seqlens), checkpoints=checkpoints,
            grads=(grad_spikes, grad_state), surrogate=(surrogate, list(numbers)), reverse=reverse,
        )  # fmt: skip
    from . import cpu

    return cpu.backward(
        program, owner, cpu.Inputs(current, coefficients, cu_seqlens), checkpoints=checkpoints,
        grads=(grad_spikes, grad_state), trained=trained, surrogate=(surrogate, list(numbers)), reverse=reverse,
    )  # fmt: skip


differentiable(forward, backward)


def run(
    key: str, current: Tensor, *, coefficients: Tensor, state: Tensor, cu_seqlens: Tensor | None, surrogate: Any,
    reverse: bool, trained: Sequence[bool],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Spikes and final state [S, B, N] of a registered program; `trained` says which coefficients have a gradient."""
    refuse_forward_mode("a neuron", current, coefficients, state)
    options = (key, surrogate.name, surrogate.numbers, reverse, trained)
    spikes, last, _ = forward(current, coefficients, state, cu_seqlens, *options)
    return spikes, last
