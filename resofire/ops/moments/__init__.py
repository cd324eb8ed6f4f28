"""Mean and spread of a stream in one pass, for norms and pooling.

    mean[b] = the mean over sequence b, 0 if it is empty         spread = Σ (x_t - m)² over all time steps, m their mean

Both are differentiable. They give a batch norm, and the mean over time of a normalised stream: the norm is the same
affine map at all time steps, so it can be applied after the mean.
"""

import importlib
from typing import Any, Never

import torch
from torch import Tensor

from ..checks import require_bounds, require_finite, require_floating, sequence_count, state_dtype
from ..neuron_scan import HAVE_NUMBA
from ..surrogate import refuse_double_backward, refuse_forward_mode

# Sums over time are split into pieces of this many steps: one float32 sum would lose digits on long sequences.
_PIECE = 64


def moments(x: Tensor, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute the mean of each sequence and the spread over all time steps.

    Args:
        x: Stream [B, T, N], or [1, S, N] packed with `cu_seqlens`; any strides.
        cu_seqlens: Boundaries of packed sequences [B + 1], int32, from 0 to S.

    Returns:
        mean [B, N], 0 for an empty sequence, and spread [N] = Σ (x - m)² with m the mean over all time steps; both
        float64 for a float64 stream, else float32.

    Example:
        >>> x = torch.randn(8, 1000, 64)
        >>> mean, spread = moments(x)
        >>> variance = spread / (8 * 1000)
    """
    require_floating("moments", "x", x)
    require_finite("moments", "x", x)
    if x.dim() != 3:
        raise ValueError(f"moments: x must have shape [B, T, N], got {list(x.shape)}")
    if cu_seqlens is not None and x.shape[0] != 1:
        raise ValueError(f"moments: x must be packed as [1, S, N] when cu_seqlens is given, got {list(x.shape)}")
    sequence_count("moments", x, cu_seqlens)
    if HAVE_NUMBA and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
        refuse_forward_mode("moments", x)
        return _moments(x, cu_seqlens)
    if cu_seqlens is not None and x.device.type == "cpu" and not torch.compiler.is_compiling():
        require_bounds("moments", cu_seqlens.tolist(), x.shape[1])
    return _by_torch(x.to(state_dtype(x)), cu_seqlens)


def _by_torch(x: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """The definition."""
    steps = x.shape[0] * x.shape[1]
    if steps == 0:
        batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        return x.sum(1).new_zeros(batch, x.shape[2]) + x.sum(), x.sum((0, 1))
    spread = x.reshape(steps, -1).var(0, correction=0) * steps
    if cu_seqlens is None:
        return x.mean(1), spread
    lengths = cu_seqlens.long().diff()
    return _sums(x[0], lengths) / lengths.clamp(min=1)[:, None], spread


def _sums(x: Tensor, lengths: Tensor) -> Tensor:
    """The sums [B, N] of x [S, N] over each sequence, added in a fixed order."""
    pieces = (lengths + _PIECE - 1) // _PIECE
    sequence = torch.repeat_interleave(pieces)
    before = (pieces.cumsum(0) - pieces)[sequence]
    nth = torch.arange(len(sequence), device=x.device) - before
    sizes = (lengths[sequence] - nth * _PIECE).clamp(max=_PIECE)
    parts = torch.segment_reduce(x, "sum", lengths=sizes, axis=0, initial=0)
    return torch.segment_reduce(parts, "sum", lengths=pieces, axis=0, initial=0)


def _host() -> Any:
    return importlib.import_module(f"{__name__}.cpu")


@torch.library.custom_op("resofire::moments", mutates_args=())
def _moments(x: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    return _host().forward(x, cu_seqlens)


@_moments.register_fake
def _(x: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return x.new_empty((batch, x.shape[2])), x.new_empty(x.shape[2])


@torch.library.custom_op("resofire::moments_backward", mutates_args=())
def _moments_backward(
    grad_mean: Tensor | None, grad_spread: Tensor | None, x: Tensor, cu_seqlens: Tensor | None, mean: Tensor
) -> Tensor:
    return _host().backward(grad_mean, grad_spread, x, cu_seqlens, mean)


@_moments_backward.register_fake
def _(
    grad_mean: Tensor | None, grad_spread: Tensor | None, x: Tensor, cu_seqlens: Tensor | None, mean: Tensor
) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[0])
    ctx.set_materialize_grads(False)


def _pull_back(ctx: Any, grad_mean: Tensor | None, grad_spread: Tensor | None) -> tuple[Tensor | None, None]:
    if grad_mean is None and grad_spread is None:
        return None, None
    return _moments_backward(grad_mean, grad_spread, *ctx.saved_tensors), None


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("moments")


_moments.register_autograd(_pull_back, setup_context=_save)
_moments_backward.register_autograd(_refuse)
