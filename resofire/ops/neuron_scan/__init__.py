"""The scan of both neurons: one pass over time that reads the current once and writes the spikes once.

The kernels cover PRF and LIF as one family:

    resonant (PRF)    coefficients [4, N] = φ_re, φ_im, Δ, V    state [2, B, N] = v, r
    otherwise (LIF)   coefficients [2, N] = β, V                state [1, B, N] = v

with the equations of `resofire.ops.prf` and `resofire.ops.lif`. The forward pass saves the state every CHUNK steps; the
backward pass goes back chunk by chunk and recomputes the potentials from there. Nothing else is saved.

On a CPU both run as compiled equations (`ops.equation`), which share `cpu.py`, `kernels.py` and `simd.py` with other
operators; `triton_op.py` is the operator for GPUs, with the kernels of `triton.py`. This file has what all operators of
neurons have in common.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple, Never

import torch
from torch import Tensor

from ..surrogate import Surrogate, refuse_double_backward

HAVE_NUMBA = importlib.util.find_spec("numba") is not None
HAVE_TRITON = importlib.util.find_spec("triton") is not None
TRITON_SURROGATES = ("ATan", "Triangle", "Sigmoid", "Rectangle")  # with a form in `triton.py`

CHUNK = 32
TILE_BYTES = 512  # the part of a row of weights or outputs that a kernel of a linear layer keeps in registers
LANES = 32  # checkpoints are padded to a multiple of this many lanes, so that a kernel can load whole vectors


def padded(lanes: int) -> int:
    """The number of lanes of a row of checkpoints."""
    return -(-lanes // LANES) * LANES


def chunk_rows(current: Tensor, cu_seqlens: Tensor | None) -> int:
    """The number of checkpoints. Packed, sequence i begins at row cu_seqlens[i] // CHUNK + i: an upper bound."""
    batch, length = current.shape[0], current.shape[1]
    if cu_seqlens is None:
        return batch * (-(-length // CHUNK))
    return length // CHUNK + cu_seqlens.shape[0]


def sequences_of(current: Tensor, cu_seqlens: Tensor | None) -> int:
    """The number of sequences."""
    return current.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1


def require_like(owner: str, name: str, value: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise ValueError unless a tensor has a shape and type that the kernels rely on."""
    if value is not None and (value.shape != shape or value.dtype != dtype):
        raise ValueError(f"{owner}: {name} must be {dtype} {list(shape)}, got {value.dtype} {list(value.shape)}")


class Inputs(NamedTuple):
    """The tensors that a scan reads, forward and backward."""

    current: Tensor  # [B, T, N], or [1, S, N] when packed
    coefficients: Tensor  # [4 or 2, N], as at the top of this file
    cu_seqlens: Tensor | None

    @property
    def resonant(self) -> bool:
        return self.coefficients.shape[0] == 4

    @property
    def sequences(self) -> int:
        return sequences_of(self.current, self.cu_seqlens)

    @property
    def states(self) -> int:
        return self.coefficients.shape[0] // 2


class Options(NamedTuple):
    """The settings of a scan; in the operators' schema they follow the tensors, in this order."""

    reset: str
    full: bool  # whether the spike inside the reset carries a gradient
    surrogate: str
    numbers: Sequence[float]  # of the surrogate
    reverse: bool


class Grads(NamedTuple):
    """The gradients that reach the outputs; None where nothing depends on one."""

    spikes: Tensor | None  # like current
    state: Tensor | None  # [C', B, N]


def fake_forward(
    current: Tensor, coefficients: Tensor, state: Tensor, cu_seqlens: Tensor | None, *rest: object
) -> tuple[Tensor, Tensor, Tensor]:
    """The shapes of spikes, final state and checkpoints."""
    checkpoints = state.new_empty((state.shape[0], chunk_rows(current, cu_seqlens), padded(current.shape[2])))
    return torch.empty_like(current), torch.empty_like(state), checkpoints


def fake_backward(
    grad_spikes: Tensor | None, grad_state: Tensor | None, current: Tensor, coefficients: Tensor, checkpoints: Tensor,
    cu_seqlens: Tensor | None, *rest: object,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The shapes of the gradients of current, coefficients and initial state."""
    state = checkpoints.new_empty((checkpoints.shape[0], sequences_of(current, cu_seqlens), current.shape[2]))
    return torch.empty_like(current), torch.empty_like(coefficients), state


def differentiable(forward: Any, backward: Any) -> None:
    """Give two operators their shapes, and the first the second as its gradient.

    Args:
        forward: (current, coefficients, state, cu_seqlens, *options) -> (spikes, state, checkpoints).
        backward: (grad of spikes, grad of state, current, coefficients, checkpoints, cu_seqlens, *options) -> gradients
            of current, coefficients and state.
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        current, coefficients, _, cu_seqlens, *options = inputs
        ctx.save_for_backward(current, coefficients, output[2], cu_seqlens)
        ctx.options = options
        ctx.set_materialize_grads(False)

    def pull_back(ctx: Any, grad_spikes: Tensor | None, grad_state: Tensor | None, _: object) -> tuple[Any, ...]:
        not_differentiable = (None,) * (1 + len(ctx.options))  # cu_seqlens and the options
        if grad_spikes is None and grad_state is None:
            return None, None, None, *not_differentiable
        return *backward(grad_spikes, grad_state, *ctx.saved_tensors, *ctx.options), *not_differentiable

    def refuse(ctx: Any, *grads: Tensor) -> Never:
        refuse_double_backward("a neuron")

    forward.register_fake(fake_forward)
    backward.register_fake(fake_backward)
    forward.register_autograd(pull_back, setup_context=save)
    backward.register_autograd(refuse)


def why_not_numba(current: Tensor, surrogate: Surrogate) -> str | None:
    """Why a neuron cannot run as a compiled scan on the CPU; None if it can."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if current.device.type != "cpu":
        return f"it runs on the CPU, and current is on {current.device}"
    if surrogate.numba is None:
        return f"surrogate {type(surrogate).__name__} has no `numba` form"
    return None
