"""The scan of both neurons: one pass over time that reads the current once and writes the spikes once.

The kernels cover PRF and LIF as one family:

    resonant (PRF)    coefficients [4, N] = φ_re, φ_im, Δ, V    state [2, B, N] = v, r
    otherwise (LIF)   coefficients [2, N] = β, V                state [1, B, N] = v

with the equations of `resofire.ops.prf` and `resofire.ops.lif`. The forward pass saves the state every CHUNK steps; the
backward pass goes back chunk by chunk and recomputes the potentials from there. Nothing else is saved.

This file defines the operators for torch (schema, shapes, autograd). Implementations are imported on first use:
`cpu.py` with the kernels of `kernels.py` (Numba), and `gpu.py` with those of `triton.py`.
"""

import importlib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Never

import torch
from torch import Tensor

from ..registry import Call, Result
from ..surrogate import Surrogate, refuse_double_backward, refuse_forward_mode

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
        return self.current.shape[0] if self.cu_seqlens is None else self.cu_seqlens.shape[0] - 1

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


def _require_layout(inputs: Inputs) -> None:
    """Check the shapes that kernels rely on: an exported graph calls the operator without the public functions."""
    current, coefficients, cu_seqlens = inputs
    if current.dim() != 3 or (cu_seqlens is not None and (cu_seqlens.dim() != 1 or current.shape[0] != 1)):
        raise ValueError(f"neuron: current must be [B, T, N], or [1, S, N] when packed, got {list(current.shape)}")
    if coefficients.dim() != 2 or coefficients.shape[0] not in (2, 4) or coefficients.shape[1] != current.shape[2]:
        shape = f"[2 or 4, {current.shape[2]}]"
        raise ValueError(f"neuron: coefficients must have shape {shape}, got {list(coefficients.shape)}")


def _require_like(name: str, value: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if value is not None and (value.shape != shape or value.dtype != dtype):
        raise ValueError(f"neuron: {name} must be {dtype} {list(shape)}, got {value.dtype} {list(value.shape)}")


class NeuronOp:
    """A forward and a backward operator of torch, run by one module of this package."""

    def __init__(self, backend: str, module: str) -> None:
        self.name = f"neuron_{backend}"

        def kernel() -> Any:
            return importlib.import_module(f"{__name__}.{module}")

        @torch.library.custom_op(f"resofire::{self.name}", mutates_args=())
        def forward(
            current: Tensor,
            coefficients: Tensor,
            state: Tensor,
            cu_seqlens: Tensor | None,
            reset: str,
            full: bool,
            surrogate: str,
            numbers: Sequence[float],
            reverse: bool,
        ) -> tuple[Tensor, Tensor, Tensor]:
            inputs = Inputs(current, coefficients, cu_seqlens)
            _require_layout(inputs)
            _require_like("state", state, (inputs.states, inputs.sequences, current.shape[2]), coefficients.dtype)
            return kernel().forward(inputs, state, Options(reset, full, surrogate, numbers, reverse))

        @forward.register_fake
        def _(
            current: Tensor, coefficients: Tensor, state: Tensor, cu_seqlens: Tensor | None, *rest: object
        ) -> tuple[Tensor, Tensor, Tensor]:
            checkpoints = state.new_empty((state.shape[0], chunk_rows(current, cu_seqlens), padded(current.shape[2])))
            return torch.empty_like(current), torch.empty_like(state), checkpoints

        @torch.library.custom_op(f"resofire::{self.name}_backward", mutates_args=())
        def backward(
            grad_spikes: Tensor | None,
            grad_state: Tensor | None,
            current: Tensor,
            coefficients: Tensor,
            checkpoints: Tensor,
            cu_seqlens: Tensor | None,
            reset: str,
            full: bool,
            surrogate: str,
            numbers: Sequence[float],
            reverse: bool,
        ) -> tuple[Tensor, Tensor, Tensor]:
            inputs = Inputs(current, coefficients, cu_seqlens)
            _require_layout(inputs)
            rows, lanes, dtype = chunk_rows(current, cu_seqlens), current.shape[2], coefficients.dtype
            _require_like("checkpoints", checkpoints, (inputs.states, rows, padded(lanes)), dtype)
            _require_like("grad_spikes", grad_spikes, tuple(current.shape), current.dtype)
            _require_like("grad_state", grad_state, (inputs.states, inputs.sequences, lanes), dtype)
            options = Options(reset, full, surrogate, numbers, reverse)
            return kernel().backward(inputs, checkpoints, Grads(grad_spikes, grad_state), options)

        @backward.register_fake
        def _(
            grad_spikes: Tensor | None,
            grad_state: Tensor | None,
            current: Tensor,
            coefficients: Tensor,
            checkpoints: Tensor,
            cu_seqlens: Tensor | None,
            *rest: object,
        ) -> tuple[Tensor, Tensor, Tensor]:
            sequences = Inputs(current, coefficients, cu_seqlens).sequences
            state = checkpoints.new_empty((checkpoints.shape[0], sequences, current.shape[2]))
            return torch.empty_like(current), torch.empty_like(coefficients), state

        def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
            current, coefficients, _, cu_seqlens, *options = inputs
            ctx.save_for_backward(current, coefficients, output[2], cu_seqlens)
            ctx.options = Options(*options)
            ctx.set_materialize_grads(False)

        def pull_back(ctx: Any, grad_spikes: Tensor | None, grad_state: Tensor | None, _: object) -> tuple[Any, ...]:
            not_differentiable = (None,) * (1 + len(Options._fields))  # cu_seqlens and the options
            if grad_spikes is None and grad_state is None:
                return None, None, None, *not_differentiable
            grad_current, grad_coefficients, grad_initial = backward(
                grad_spikes, grad_state, *ctx.saved_tensors, *ctx.options
            )
            return grad_current, grad_coefficients, grad_initial, *not_differentiable

        def refuse(ctx: Any, *grads: Tensor) -> Never:
            refuse_double_backward("a neuron")

        forward.register_autograd(pull_back, setup_context=save)
        backward.register_autograd(refuse)
        self.forward, self.backward = forward, backward

    def run(self, call: Call, current: Tensor) -> Result:
        refuse_forward_mode("a neuron", current, call.coefficients, call.state)
        options = Options(call.reset, call.full, call.surrogate.name, call.surrogate.numbers, call.reverse)
        spikes, state, _ = self.forward(current, call.coefficients, call.state, call.cu_seqlens, *options)
        return Result(spikes.to(call.current.dtype), state)


triton_op = NeuronOp("triton", "gpu")


def why_not_numba(current: Tensor, surrogate: Surrogate) -> str | None:
    """Why a neuron cannot run as a compiled scan on the CPU; None if it can."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if current.device.type != "cpu":
        return f"it runs on the CPU, and current is on {current.device}"
    if surrogate.numba is None:
        return f"surrogate {type(surrogate).__name__} has no `numba` form"
    return None


def run_triton(call: Call) -> Result:
    return triton_op.run(call, call.current)


def why_not_triton(call: Call) -> str | None:
    if not HAVE_TRITON:
        return "not available: the package triton is not installed"
    if call.current.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return (
            f"it runs on a GPU (or, with TRITON_INTERPRET=1, slowly anywhere), and current is on {call.current.device}"
        )
    if call.surrogate.triton is None and call.surrogate.name not in TRITON_SURROGATES:
        return f"surrogate {type(call.surrogate).__name__} has no `triton` form"
    return None
