"""The backend `triton` of both neurons: the operator for torch, with its checks. `gpu.py` runs the kernels."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from ..registry import Call, Result
from ..surrogate import refuse_forward_mode
from . import HAVE_TRITON, TRITON_SURROGATES, Grads, Inputs, Options, chunk_rows, differentiable, padded, require_like


@torch.library.custom_op("resofire::neuron_triton", mutates_args=())
def forward(
    current: Tensor, coefficients: Tensor, state: Tensor, cu_seqlens: Tensor | None, reset: str, full: bool,
    surrogate: str, numbers: Sequence[float], reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from . import gpu

    inputs = Inputs(current, coefficients, cu_seqlens)
    _require_layout(inputs)
    require_like("neuron", "state", state, (inputs.states, inputs.sequences, current.shape[2]), coefficients.dtype)
    return gpu.forward(inputs, state, Options(reset, full, surrogate, numbers, reverse))


@torch.library.custom_op("resofire::neuron_triton_backward", mutates_args=())
def backward(
    grad_spikes: Tensor | None, grad_state: Tensor | None, current: Tensor, coefficients: Tensor, checkpoints: Tensor,
    cu_seqlens: Tensor | None, reset: str, full: bool, surrogate: str, numbers: Sequence[float], reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from . import gpu

    inputs = Inputs(current, coefficients, cu_seqlens)
    _require_layout(inputs)
    rows, lanes, dtype = chunk_rows(current, cu_seqlens), current.shape[2], coefficients.dtype
    require_like("neuron", "checkpoints", checkpoints, (inputs.states, rows, padded(lanes)), dtype)
    require_like("neuron", "grad_spikes", grad_spikes, tuple(current.shape), current.dtype)
    require_like("neuron", "grad_state", grad_state, (inputs.states, inputs.sequences, lanes), dtype)
    options = Options(reset, full, surrogate, numbers, reverse)
    return gpu.backward(inputs, checkpoints, Grads(grad_spikes, grad_state), options)


differentiable(forward, backward)


def run(call: Call) -> Result:
    """Run a call of `prf` or `lif`."""
    refuse_forward_mode("a neuron", call.current, call.coefficients, call.state)
    options = Options(call.reset, call.full, call.surrogate.name, call.surrogate.numbers, call.reverse)
    spikes, state, _ = forward(call.current, call.coefficients, call.state, call.cu_seqlens, *options)
    return Result(spikes.to(call.current.dtype), state)


def why_not(call: Call) -> str | None:
    """Why Triton does not run a call; None if it does."""
    if not HAVE_TRITON:
        return "not available: the package triton is not installed"
    if call.current.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return (
            f"it runs on a GPU (or, with TRITON_INTERPRET=1, slowly anywhere), and current is on {call.current.device}"
        )
    if call.surrogate.triton is None and call.surrogate.name not in TRITON_SURROGATES:
        return f"surrogate {type(call.surrogate).__name__} has no `triton` form"
    return None


def _require_layout(inputs: Inputs) -> None:
    """Check the shapes that kernels rely on: an exported graph calls the operator without the public functions."""
    current, coefficients, cu_seqlens = inputs
    if current.dim() != 3 or (cu_seqlens is not None and (cu_seqlens.dim() != 1 or current.shape[0] != 1)):
        raise ValueError(f"neuron: current must be [B, T, N], or [1, S, N] when packed, got {list(current.shape)}")
    if coefficients.dim() != 2 or coefficients.shape[0] not in (2, 4) or coefficients.shape[1] != current.shape[2]:
        shape = f"[2 or 4, {current.shape[2]}]"
        raise ValueError(f"neuron: coefficients must have shape {shape}, got {list(coefficients.shape)}")
