"""A whole SD-TCM block as one operator for the CPU; the equation is in `resofire.nn.sdtcm`, which composes it from parts.

Between the temporal neuron and the end of the block nothing of size [B, T, D] is kept but R, for the slope of the spatial
spike: spikes are bits, the norm is part of the neuron's walk, shortcuts and dropout are part of the sums over active
inputs. Sequences go through in spans that fit the caches, forward and backward.

Here the operator is defined for torch (schema, shapes, autograd); what runs is in `fused.py`, with `kernels.py`.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Never

import torch
from torch import Tensor

from ..fused import HAVE_NUMBA, chunk_rows, padded
from ..spike_linear.events import words
from ..surrogate import refuse_double_backward


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """U⁺, the fire rates of its neurons, and what the backward pass needs: R, temporal and spatial spikes, checkpoints.

    u               [B, T, N], or [1, S, N] packed with `cu_seqlens`; contiguous
    coefficients    [K, C, N] of K = 1 or 2 temporal neurons, the second of which walks backwards; see `ops.fused`
    gamma, beta, mean, inverse    the norm before the neurons: γ (u - mean) inverse + β; None for no norm.
                    `training` says that mean and inverse are those of u, so that u's gradient goes through them too
    token_weight [N, K N], channel_weight [N, N], the biases [N], the amplitudes [] or None for 1
    keep            [2, B T], uint8: 0 where a time step goes without the first or second Linear; others are scaled
    rates           [K + 1], float64, of the temporal neurons and the spatial one; differentiable
    """
    return _host().forward(
        u, coefficients, gamma, beta, token_weight, token_bias, channel_weight, channel_bias, token_amplitude,
        channel_amplitude, mean, inverse, keep, cu_seqlens, keep_scale, reset, threshold,
    )  # fmt: skip


@block.register_fake
def _(
    u: Tensor, coefficients: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    cu_seqlens = rest[11]
    neurons, rows, lanes = coefficients.shape
    steps = u.shape[0] * u.shape[1]
    token_bits = u.new_empty((steps, neurons * words(lanes)), dtype=torch.int64)
    channel_bits = u.new_empty((steps, words(lanes)), dtype=torch.int64)
    checkpoints = u.new_empty((neurons, rows // 2, chunk_rows(u, cu_seqlens), padded(lanes)))
    rates = u.new_empty(neurons + 1, dtype=torch.float64)
    return torch.empty_like(u), rates, torch.empty_like(u), token_bits, channel_bits, checkpoints


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
    channel_weight: Tensor,
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of u, coefficients (that of V is left 0), [γ, β], the weights and biases, and the amplitudes."""
    return _host().backward(
        grad, grad_rates, r, token_bits, channel_bits, checkpoints, u, coefficients, gamma, beta, token_weight,
        channel_weight, token_amplitude, channel_amplitude, mean, inverse, keep, cu_seqlens, training, keep_scale,
        reset, full, token_surrogate, list(token_numbers), threshold, channel_surrogate, list(channel_numbers),
    )  # fmt: skip


@block_backward.register_fake
def _(grad: Tensor | None, grad_rates: Tensor | None, r: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    u, coefficients, token_weight, channel_weight = rest[3], rest[4], rest[7], rest[8]
    lanes = u.shape[2]
    return (
        torch.empty_like(u), torch.empty_like(coefficients), u.new_empty((2, lanes)), torch.empty_like(token_weight),
        u.new_empty(lanes), torch.empty_like(channel_weight), u.new_empty(lanes), u.new_empty(()), u.new_empty(()),
    )  # fmt: skip


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    (u, coefficients, gamma, beta, token_weight, _, channel_weight, _, token_amplitude, channel_amplitude, mean, inverse,
     keep, cu_seqlens, *ctx.options) = inputs  # fmt: skip
    ctx.save_for_backward(
        *output[2:], u, coefficients, gamma, beta, token_weight, channel_weight, token_amplitude, channel_amplitude,
        mean, inverse, keep, cu_seqlens,
    )  # fmt: skip
    ctx.set_materialize_grads(False)


def _pull_back(ctx: Any, grad: Tensor | None, grad_rates: Tensor | None, *_: object) -> tuple[Any, ...]:
    if grad is None and grad_rates is None:
        return (None,) * (14 + len(ctx.options))
    u, coefficients, norm, token, token_bias, channel, channel_bias, *amplitudes = block_backward(
        grad, grad_rates, *ctx.saved_tensors, *ctx.options
    )
    gamma, beta = norm if ctx.needs_input_grad[2] else (None, None)
    grads = (u, coefficients, gamma, beta, token, token_bias, channel, channel_bias, *amplitudes)
    wanted = (grad if asked else None for grad, asked in zip(grads, ctx.needs_input_grad, strict=False))
    return (*wanted, None, None, None, None, *(None for _ in ctx.options))


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("an SD-TCM block")


block.register_autograd(_pull_back, setup_context=_save)
block_backward.register_autograd(_refuse)


def why_not(u: Tensor) -> str | None:
    """Why a stream cannot go through the fused block."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if u.device.type != "cpu":
        return f"it runs on the CPU, and u is on {u.device}"
    if u.dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64, and u is {str(u.dtype).removeprefix('torch.')}"
    return None
