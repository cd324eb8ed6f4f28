"""Moments on the CPU: pieces of sequences in parallel, their sums added in a fixed order in float64."""

import numpy as np
import torch
from torch import Tensor

from ..checks import require_bounds
from ..neuron_scan import simd
from ..neuron_scan.threads import share_out
from ..spike_linear.events import padded_row, shares
from ..spike_linear.kernels import GROUP
from .kernels import affine_kernel, sums_kernel

PIECE = 1024
SAMPLES = 64


def _pieces(x: Tensor, cu_seqlens: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of all sequences, and the pieces (first step, end step, sequence) of [B T]."""
    if cu_seqlens is None:
        bounds = np.arange(x.shape[0] + 1) * x.shape[1]
    else:
        require_bounds("moments", cu_seqlens.tolist(), x.shape[1])
        bounds = cu_seqlens.numpy().astype(np.int64)
    lengths = np.diff(bounds)
    counts = -(-lengths // PIECE)
    sequence = np.repeat(np.arange(len(lengths)), counts)
    nth = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = bounds[sequence] + nth * PIECE
    return lengths, np.stack([first, np.minimum(first + PIECE, bounds[sequence + 1]), sequence], 1)


def _side_by_side(pieces: np.ndarray, threads: int) -> list[np.ndarray]:
    return np.array_split(pieces, max(1, min(4 * threads, len(pieces))))


def forward(x: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    x = x.contiguous()
    lanes, threads = x.shape[2], torch.get_num_threads()
    lengths, pieces = _pieces(x, cu_seqlens)
    if not x.numel():
        return x.new_zeros((len(lengths), lanes)), x.new_zeros(lanes)
    # Sum x - centre: squares of large numbers that differ little would cancel. The centre is the mean of rows sampled
    # from the whole stream, because a single row may be an outlier.
    rows = x.view(-1, lanes)
    centre = padded_row(rows[:: max(1, len(rows) // SAMPLES)].double().mean(0), x, lanes)
    sums = np.zeros((len(pieces), 2, len(centre)))
    kernel = sums_kernel(simd.BYTES // x.element_size())
    source, room = x.view(-1).numpy(), sums.reshape(-1)
    order = _side_by_side(np.arange(len(pieces)), threads)
    share_out(lambda share: kernel(pieces, share, source, lanes, centre, room), order, threads)
    total = np.zeros((len(lengths), len(centre)))
    np.add.at(total, pieces[:, 2], sums[:, 0])
    mean = np.where(lengths[:, None] > 0, centre + total / np.maximum(lengths, 1)[:, None], 0.0)
    spread = sums[:, 1].sum(0) - total.sum(0) ** 2 / lengths.sum()
    return (
        torch.from_numpy(mean[:, :lanes]).to(x.dtype).contiguous(),
        torch.from_numpy(np.maximum(spread[:lanes], 0.0)).to(x.dtype),
    )


def backward(
    grad_mean: Tensor | None, grad_spread: Tensor | None, x: Tensor, cu_seqlens: Tensor | None, mean: Tensor
) -> Tensor:
    """∂mean[b] / length + 2 ∂spread (x - m)."""
    x = x.contiguous()
    lanes = x.shape[2]
    lengths, pieces = _pieces(x, cu_seqlens)
    out = torch.empty_like(x)
    if not x.numel():
        return out
    weight = torch.from_numpy(lengths)[:, None]
    factor = x.new_zeros(lanes).double() if grad_spread is None else 2 * grad_spread.double()
    constant = -factor * (mean.double() * weight).sum(0) / int(lengths.sum())
    if grad_mean is not None:
        constant = constant + grad_mean.double() / weight.clamp(min=1)
    _affine(x, pieces, constant.expand(len(lengths), lanes), factor, out, onto=False)
    return out


def add_affine(x: Tensor, u: Tensor, constant: Tensor, factor: Tensor) -> None:
    """x += constant + factor u, per lane."""
    steps = u.numel() // u.shape[-1]
    pieces = np.array([(first, end, 0) for first, end in shares(steps, torch.get_num_threads(), GROUP)])
    _affine(u, pieces, constant[None], factor, x, onto=True)


def _affine(x: Tensor, pieces: np.ndarray, constant: Tensor, factor: Tensor, out: Tensor, *, onto: bool) -> None:
    lanes, threads = x.shape[-1], torch.get_num_threads()
    rows = np.concatenate([padded_row(row, x, lanes) for row in constant])
    kernel = affine_kernel(simd.BYTES // x.element_size(), onto)
    rest = (x.view(-1).numpy(), lanes, rows, padded_row(factor, x, lanes), out.view(-1).numpy())
    share_out(lambda share: kernel(share, *rest), _side_by_side(pieces, threads), threads)
