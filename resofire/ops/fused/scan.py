"""The fused neuron on the CPU, in Numba.

A task is one sequence and a group of lanes. It goes through time in chunks, and within a chunk through the lanes in
tiles as wide as a vector (`simd`), whose state stays in registers from the first step of the chunk to the last. A tile
with odd strides or too few lanes goes through a small buffer; the whole tensor is never copied. Tasks are dealt out to
the threads by length. No result depends on who computed it: each sequence and lane has its own sums, added up in
order at the end, in float64.
"""

import heapq
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from ..checks import require_bounds
from ..surrogate import surrogate_from
from . import CHUNK, chunk_rows, padded, simd
from .kernels import RESETS, backward_kernel, forward_kernel

# Above this size spikes and gradients are written past the caches, which would not hold them anyway.
STREAM_BYTES = 16 << 20
# Below this many elements a second thread costs more than it brings.
ELEMENTS_PER_THREAD = 8192


def _plan(current: Tensor, cu_seqlens: Tensor | None) -> np.ndarray:
    """A row per sequence: its batch index, its first step, its length and its first checkpoint."""
    batch, length, _ = current.shape
    if cu_seqlens is None:
        index = np.arange(batch, dtype=np.int64)
        zero = np.zeros_like(index)
        return np.stack([index, zero, zero + length, index * (-(-length // CHUNK))], 1)
    bounds = cu_seqlens.tolist()
    require_bounds("cu_seqlens", bounds, length)
    starts, ends = np.array(bounds[:-1], np.int64), np.array(bounds[1:], np.int64)
    index = np.arange(len(starts), dtype=np.int64)
    return np.stack([np.zeros_like(index), starts, ends - starts, starts // CHUNK + index], 1)


def _deal(plan: np.ndarray, lanes: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Tasks (sequence, first lane, end lane) in the order of the threads that run them, and each thread's share."""
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    lengths = plan[:, 2]
    threads = max(1, min(threads, int(lengths.sum()) * lanes // ELEMENTS_PER_THREAD))
    numba.set_num_threads(threads)
    tiles = -(-lanes // width)
    # Whole rows are read most smoothly; lanes are split only as far as the threads need it.
    groups = 1 if threads == 1 else max(1, min(tiles, -(-4 * threads // max(1, len(lengths)))))
    size = max(1, -(-tiles // groups)) * width
    work = sorted(
        ((int(length) * (min(first + size, lanes) - first), sequence, first)
         for sequence, length in enumerate(lengths) for first in range(0, lanes, size)),
        key=lambda task: (-task[0], task[1:]),
    )  # fmt: skip
    loads = [(0, worker) for worker in range(threads)]
    dealt: list[list[tuple[int, int, int]]] = [[] for _ in range(threads)]
    for cost, sequence, first in work:
        load, worker = loads[0]
        dealt[worker].append((sequence, first, min(first + size, lanes)))
        heapq.heapreplace(loads, (load + cost, worker))
    tasks = [task for share in dealt for task in sorted(share)]
    shares = np.cumsum([0, *(len(share) for share in dealt)])
    return np.array(tasks, np.int64).reshape(-1, 3), shares


def _flat(tensor: Tensor) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The memory under a tensor as one row, and its strides; nothing is copied."""
    if tensor.numel() == 0:
        return np.empty(0, _numpy(tensor.dtype)), (0, 0, 1)
    strides = tensor.stride()
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    return tensor.detach().as_strided((span,), (1,)).numpy(), (strides[0], strides[1], strides[2])


def _numpy(dtype: torch.dtype) -> Any:
    return np.float64 if dtype == torch.float64 else np.float32


def _widened(rows: Tensor, pitch: int) -> Tensor:
    """[..., N] copied to [..., pitch], with zeros behind."""
    wide = rows.new_zeros((*rows.shape[:-1], pitch))
    wide[..., : rows.shape[-1]] = rows
    return wide


def _past_cache(tensor: Tensor) -> bool:
    """Whether to write a tensor past the caches: it is large, and each vector begins on a multiple of 64 bytes."""
    unit = 64 // tensor.element_size()
    aligned = tensor.data_ptr() % 64 == 0 and all(stride % unit == 0 for stride in tensor.stride()[:2])
    return aligned and tensor.numel() * tensor.element_size() >= STREAM_BYTES


def forward(
    current: Tensor, coefficients: Tensor, state: Tensor, cu_seqlens: Tensor | None, reset: str, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, final state and checkpoints [C', rows, padded N] of a call; see the package for the shapes."""
    lanes = current.shape[2]
    pitch = padded(lanes)
    plan = _plan(current, cu_seqlens)
    spikes = torch.empty_like(current)
    # Zeros, because packed sequences may leave a row between them unused, and a result must not hold old memory.
    kept = state.new_zeros((state.shape[0], chunk_rows(current, cu_seqlens), pitch))
    running = _widened(state, pitch)
    if current.numel():
        flat, at = _flat(current)
        out, out_at = _flat(spikes)
        width = simd.BYTES // current.element_size()
        tasks, shares = _deal(plan, lanes, width)
        kernel = forward_kernel(width, coefficients.shape[0] == 4, RESETS[reset])
        kernel(
            plan, tasks, shares, lanes, flat, at, out, out_at, _past_cache(spikes),
            _widened(coefficients, pitch).view(-1).numpy(), pitch, running.view(-1).numpy(), kept.view(-1).numpy(),
            reverse,
        )  # fmt: skip
    return spikes, running[..., :lanes].clone(), kept


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
    numbers: list[float],
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of current, coefficients and initial state."""
    lanes = current.shape[2]
    pitch = padded(lanes)
    plan = _plan(current, cu_seqlens)
    sequences, states = len(plan), checkpoints.shape[0]
    grad_current = torch.empty_like(current)
    if grad_state is None:
        grad_state = current.new_zeros((states, sequences, lanes))
    running = _widened(grad_state, pitch)
    sums = np.zeros((coefficients.shape[0], sequences, pitch))
    if current.numel():
        # A gradient that is missing is a single zero, read again and again.
        grads = current.new_zeros(1).expand(current.shape) if grad_spikes is None else grad_spikes
        flat, at = _flat(current)
        pull, pull_at = _flat(grads.to(current.dtype))
        out, out_at = _flat(grad_current)
        width = simd.BYTES // current.element_size()
        tasks, shares = _deal(plan, lanes, width)
        shape = surrogate_from(surrogate, numbers)
        assert shape.numba is not None
        kernel = backward_kernel(
            width, coefficients.shape[0] == 4, RESETS[reset], full and reset != "none", shape.numba, shape.vector
        )
        kernel(
            plan, tasks, shares, lanes, flat, at, pull, pull_at, out, out_at, _past_cache(grad_current),
            _widened(coefficients, pitch).view(-1).numpy(), pitch, checkpoints.contiguous().view(-1).numpy(),
            tuple(map(_numpy(current.dtype), numbers)), running.view(-1).numpy(), sums.reshape(-1), reverse,
        )  # fmt: skip
    total = torch.from_numpy(sums.sum(1)[:, :lanes]).to(coefficients.dtype)
    return grad_current, total, running[..., :lanes].clone()
