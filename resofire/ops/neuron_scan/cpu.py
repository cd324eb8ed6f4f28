"""How a scan is laid out on the CPU: tasks, threads and memory.

A task is one sequence and a group of lanes. It runs through time in chunks, and within a chunk through the lanes in
tiles as wide as a vector (`simd`), whose state stays in registers from the first step of the chunk to the last. A tile
with odd strides or too few lanes is copied through a small buffer; the whole tensor is never copied (half precision is
converted before). Tasks are distributed over the threads by length. No result depends on the number of threads: each
sequence and lane has its own sums, added in a fixed order in float64.
"""

import functools
import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import require_bounds
from . import CHUNK, simd
from .threads import share_out

# Larger spikes and gradients are written past the caches, which could not hold them.
STREAM_BYTES = 16 << 20
# With fewer elements per thread, a second thread costs more than it saves.
ELEMENTS_PER_THREAD = 8192
# More shares than threads balance the load if one thread is delayed; each costs some microseconds.
SHARES_PER_THREAD = 4

# The strides of a [B, T, N] in flat memory, and the offset of its first element.
Place = tuple[int, int, int, int]


def run(kernel: Callable[..., None], plan: np.ndarray, shares: list[np.ndarray], *rest: object) -> None:
    """Run a kernel on every share of a plan, on as many threads as torch uses."""
    share_out(lambda tasks: kernel(plan, tasks, *rest), shares, min(torch.get_num_threads(), len(shares)))


def plan_of(owner: str, current: Tensor, cu_seqlens: Tensor | None) -> tuple[np.ndarray, list[np.ndarray]]:
    """Plan a call: a row (batch index, first step, length, first checkpoint) per sequence, and the tasks in shares."""
    batch, length, lanes = current.shape
    width, threads = simd.BYTES // current.element_size(), torch.get_num_threads()
    if cu_seqlens is None:
        return _even_plan(batch, length, lanes, width, threads)
    bounds = cu_seqlens.tolist()
    require_bounds(owner, bounds, length)
    starts, ends = np.array(bounds[:-1], np.int64), np.array(bounds[1:], np.int64)
    index = np.arange(len(starts), dtype=np.int64)
    plan = np.stack([np.zeros_like(index), starts, ends - starts, starts // CHUNK + index], 1)
    return plan, deal(ends - starts, lanes, width, threads)


@functools.lru_cache(64)
def _even_plan(batch: int, length: int, lanes: int, width: int, threads: int) -> tuple[np.ndarray, list[np.ndarray]]:
    index = np.arange(batch, dtype=np.int64)
    zero = np.zeros_like(index)
    plan = np.stack([index, zero, zero + length, index * (-(-length // CHUNK))], 1)
    return plan, deal(zero + length, lanes, width, threads)


def deal(lengths: np.ndarray, lanes: int, width: int, threads: int) -> list[np.ndarray]:
    """Split the tasks (sequence, first lane, end lane) into shares of about equal work, a few per thread."""
    sequences = len(lengths)
    threads = min(threads, int(lengths.sum()) * lanes // ELEMENTS_PER_THREAD)
    # Whole rows are fastest to read: lanes are split only if there are fewer sequences than threads.
    groups = max(1, min(-(-lanes // width), -(-threads // max(1, sequences))))
    size = max(1, -(-lanes // (groups * width))) * width
    first = np.arange(0, lanes, size)
    tasks = np.stack([
        np.repeat(np.arange(sequences), len(first)),
        np.tile(first, sequences),
        np.tile(np.minimum(first + size, lanes), sequences),
    ], 1)  # fmt: skip
    pieces = min(SHARES_PER_THREAD * threads, len(tasks))
    if threads <= 1:
        return [tasks]
    if lengths.min() == lengths.max():
        return np.array_split(tasks, pieces)
    # Longest first, each to the share with the least work so far.
    cost = lengths[tasks[:, 0]] * (tasks[:, 2] - tasks[:, 1])
    loads = [(0, piece) for piece in range(pieces)]
    owner = np.empty(len(tasks), np.int64)
    for task in np.argsort(-cost, kind="stable"):
        load, piece = loads[0]
        owner[task] = piece
        heapq.heapreplace(loads, (load + int(cost[task]), piece))
    return [tasks[owner == piece] for piece in range(pieces)]


def flat(tensor: Tensor) -> tuple[np.ndarray, Place]:
    """View the memory of a tensor as one flat array, and return its strides too; copies nothing."""
    if tensor.numel() == 0:
        return np.empty(0, number_type(tensor.dtype)), (0, 0, 1, 0)
    strides = tensor.stride()
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    return tensor.detach().as_strided((span,), (1,)).numpy(), (strides[0], strides[1], strides[2], 0)


def with_whole_rows(tensor: Tensor) -> Tensor:
    """A [B, T, N] that was expanded over N, such as the gradient of a sum, with each row written out once."""
    if tensor.stride(2) != 0 or tensor.numel() == 0:
        return tensor
    apart = tensor[tuple(slice(None) if stride else slice(1) for stride in tensor.stride()[:2])]
    return apart.contiguous().expand(tensor.shape)


def number_type(dtype: torch.dtype) -> Any:
    return np.float64 if dtype == torch.float64 else np.float32


def widened(rows: Tensor, pitch: int) -> Tensor:
    """Copy [..., N] to [..., pitch], padded with zeros."""
    wide = rows.new_zeros((*rows.shape[:-1], pitch))
    wide[..., : rows.shape[-1]] = rows
    return wide


def past_cache(tensor: Tensor) -> bool:
    """Whether to write a tensor past the caches: it is large, and its rows are aligned to 64 bytes."""
    unit = 64 // tensor.element_size()
    aligned = tensor.data_ptr() % 64 == 0 and all(stride % unit == 0 for stride in tensor.stride()[:-1])
    return aligned and tensor.numel() * tensor.element_size() >= STREAM_BYTES
