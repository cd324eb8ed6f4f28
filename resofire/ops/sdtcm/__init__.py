"""A whole SD-TCM block as one operator for the CPU. The equation is in `resofire.nn.sdtcm`, which can also compose it.

Nothing of size [B, T, N] is kept for the backward pass but the input and R, for the slope of the spatial spikes:
spikes are bits, the norm is part of the neuron's walk, shortcuts and dropout are part of the sums over active inputs.
Sequences go through in spans that stay near the cores, forward and backward.

Here the operator is defined for torch (schema, shapes, autograd); what runs is in `fused.py`, with `kernels.py`.
"""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Never

import torch
from torch import Tensor

from ..checks import require_choice
from ..fused import HAVE_NUMBA, chunk_rows, padded
from ..spike_linear.events import words
from ..surrogate import refuse_double_backward


class Block(NamedTuple):
    """What the operator is given; its arguments have these names, in this order."""

    u: Tensor  # [B, T, N], or [1, S, N] packed with cu_seqlens
    coefficients: Tensor  # [K, C, N] of K = 1 or 2 temporal neurons, the second walks backwards; see `ops.fused`
    gamma: Tensor | None  # [N]: the norm in front of them, γ (u - mean) inverse + β; None for none
    beta: Tensor | None
    token_weight: Tensor  # [N, K N]
    token_bias: Tensor  # [N]
    channel_weight: Tensor  # [N, N]
    channel_bias: Tensor  # [N]
    token_amplitude: Tensor | None  # []; None is 1
    channel_amplitude: Tensor | None
    mean: Tensor | None  # [N], of the norm
    inverse: Tensor | None  # [N], 1 / √(variance + eps)
    keep: Tensor | None  # [2, B T], uint8: 0 where a time step goes without the output of the first or second Linear
    cu_seqlens: Tensor | None
    training: bool  # whether mean and inverse are those of u, so that its gradient goes through them too
    keep_scale: float  # what the outputs that are kept are multiplied by
    reset: str
    full: bool
    token_surrogate: str
    token_numbers: Sequence[float]
    threshold: float  # of the spatial neuron
    channel_surrogate: str
    channel_numbers: Sequence[float]
    group: str  # of processes whose time steps mean and inverse are also those of; "" for none
    gradient_dtype: str  # of the products that give the gradients of spikes: one of GRADIENT_DTYPES


GRADIENT_DTYPES = ("float32", "bfloat16")
TENSORS = 14  # so many of them are tensors, and come first


class Kept(NamedTuple):
    """What the forward pass keeps for the backward pass."""

    r: Tensor  # [B, T, N]
    token_bits: Tensor  # [B T, K words]
    channel_bits: Tensor  # [B T, words]
    checkpoints: Tensor  # [K, C / 2, rows, padded N]


def _host() -> Any:
    return importlib.import_module(f"{__name__}.fused")


@torch.library.custom_op("resofire::sdtcm", mutates_args=())
def block(
    u: Tensor,
    coefficients: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    token_weight: Tensor,
    token_bias: Tensor,
    channel_weight: Tensor,
    channel_bias: Tensor,
    token_amplitude: Tensor | None,
    channel_amplitude: Tensor | None,
    mean: Tensor | None,
    inverse: Tensor | None,
    keep: Tensor | None,
    cu_seqlens: Tensor | None,
    training: bool,
    keep_scale: float,
    reset: str,
    full: bool,
    token_surrogate: str,
    token_numbers: Sequence[float],
    threshold: float,
    channel_surrogate: str,
    channel_numbers: Sequence[float],
    group: str = "",
    gradient_dtype: str = "float32",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """U⁺ like u; the fire rates [K + 1] of the temporal neurons and the spatial one, float64; and what is `Kept`.

    Gradients flow from U⁺ and the rates to all that `Block` lists down to the amplitudes, but not to V."""
    return _host().forward(
        Block(
            u, coefficients, gamma, beta, token_weight, token_bias, channel_weight, channel_bias, token_amplitude,
            channel_amplitude, mean, inverse, keep, cu_seqlens, training, keep_scale, reset, full, token_surrogate,
            token_numbers, threshold, channel_surrogate, channel_numbers, group, gradient_dtype,
        )
    )  # fmt: skip


@block.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    u, coefficients, cu_seqlens = inputs[0], inputs[1], inputs[13]
    neurons, rows, lanes = coefficients.shape
    steps = u.shape[0] * u.shape[1]
    return (
        torch.empty_like(u, memory_format=torch.contiguous_format),
        u.new_empty(neurons + 1, dtype=torch.float64),
        torch.empty_like(u, memory_format=torch.contiguous_format),
        u.new_empty((steps, neurons * words(lanes)), dtype=torch.int64),
        u.new_empty((steps, words(lanes)), dtype=torch.int64),
        u.new_empty((neurons, rows // 2, chunk_rows(u, cu_seqlens), padded(lanes))),
    )


@torch.library.custom_op("resofire::sdtcm_backward", mutates_args=())
def block_backward(
    grad: Tensor | None,
    grad_rates: Tensor | None,
    r: Tensor,
    token_bits: Tensor,
    channel_bits: Tensor,
    checkpoints: Tensor,
    u: Tensor,
    coefficients: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    token_weight: Tensor,
    token_bias: Tensor,
    channel_weight: Tensor,
    channel_bias: Tensor,
    token_amplitude: Tensor | None,
    channel_amplitude: Tensor | None,
    mean: Tensor | None,
    inverse: Tensor | None,
    keep: Tensor | None,
    cu_seqlens: Tensor | None,
    training: bool,
    keep_scale: float,
    reset: str,
    full: bool,
    token_surrogate: str,
    token_numbers: Sequence[float],
    threshold: float,
    channel_surrogate: str,
    channel_numbers: Sequence[float],
    group: str = "",
    gradient_dtype: str = "float32",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of what `Block` lists down to the amplitudes; zeros for what is not there, and for V."""
    given = Block(
        u, coefficients, gamma, beta, token_weight, token_bias, channel_weight, channel_bias, token_amplitude,
        channel_amplitude, mean, inverse, keep, cu_seqlens, training, keep_scale, reset, full, token_surrogate,
        token_numbers, threshold, channel_surrogate, channel_numbers, group, gradient_dtype,
    )  # fmt: skip
    return _host().backward(given, Kept(r, token_bits, channel_bits, checkpoints), grad, grad_rates)


@block_backward.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    u, coefficients, _, _, token_weight, token_bias, channel_weight, channel_bias = inputs[6:14]
    lanes = u.shape[2]
    tensors = (u, coefficients, token_weight, token_bias, channel_weight, channel_bias)
    x, rows, *synapses = (torch.empty_like(each, memory_format=torch.contiguous_format) for each in tensors)
    return x, rows, u.new_empty(lanes), u.new_empty(lanes), *synapses, u.new_empty(()), u.new_empty(())


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[2:], *inputs[:TENSORS])
    ctx.options = inputs[TENSORS:]
    ctx.set_materialize_grads(False)


def _pull_back(ctx: Any, grad: Tensor | None, grad_rates: Tensor | None, *_: object) -> tuple[Any, ...]:
    absent = (None,) * (4 + len(ctx.options))
    if grad is None and grad_rates is None:
        return (None,) * 10 + absent
    grads = block_backward(grad, grad_rates, *ctx.saved_tensors, *ctx.options)
    return *(grad if asked else None for grad, asked in zip(grads, ctx.needs_input_grad, strict=False)), *absent


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("an SD-TCM block")


block.register_autograd(_pull_back, setup_context=_save)
block_backward.register_autograd(_refuse)


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices in hardware (AVX512-BF16 or AMX).

    Without the instruction such a product is emulated, about 50 times slower than float32."""
    checks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return torch.backends.mkldnn.is_available() and any(check is not None and check() for check in checks)


def require_gradient_dtype(op: str, value: str) -> None:
    """Checks a type for the gradient products, by name: that it is one of them, and that this CPU has it."""
    require_choice(op, "gradient_dtype", value, GRADIENT_DTYPES)
    if value == "bfloat16" and not has_bfloat16():
        raise ValueError(
            f"{op}: gradient_dtype must be 'float32' on this CPU, which has neither AVX512-BF16 nor AMX, got 'bfloat16'"
        )


def why_not(u: Tensor) -> str | None:
    """Why a stream cannot go through the fused block."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if u.device.type != "cpu":
        return f"it runs on the CPU, and u is on {u.device}"
    if u.dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64, and u is {str(u.dtype).removeprefix('torch.')}"
    return None
