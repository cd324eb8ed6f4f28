"""The kernel of the MLP, in Numba: UNITS hidden units at a time, each a vector of channels."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..equation import vectors as v
from ..neuron_scan import CHUNK
from ..neuron_scan.kernels import _place, compiled, fingerprint
from ..neuron_scan.simd import load, store, zeros_like
from ..state_space import kernels as tiles
from ..state_space import masked
from ..state_space.kernels import _aligned, _read, _write

UNITS = 4


@functools.cache
def forward_kernel(width: int) -> Callable[..., Any]:
    """y of each sequence; a tile holds a chunk of time steps and the K - 1 steps before it."""
    tag, size = fingerprint(v, tiles, masked), CHUNK * width

    def forward(plan, tasks, lanes, x, x_at, y, y_at, rows, bias):
        _ = tag  # part of the cache key
        units, taps = rows.shape[0], rows.shape[1] - 2
        scratch = np.empty(2 * size + (taps + 1) * width, x.dtype)
        source = _aligned(scratch)
        target = source + size + (taps - 1) * width
        zero = zeros_like(load(scratch, 0))
        for i in range(tasks.shape[0]):
            sequence, length = tasks[i, 0], plan[tasks[i, 0], 2]
            at, row = _place(plan, sequence, x_at, False)
            to, to_row = _place(plan, sequence, y_at, False)
            for first in range(0, length, CHUNK):
                steps = min(CHUNK, length - first)
                # Steps before the chunk that exist, and those that count as 0.
                before = min(taps - 1, first)
                missing = taps - 1 - before
                for lane in range(tasks[i, 1], tasks[i, 2], width):
                    some = min(width, lanes - lane)
                    for t in range(missing):
                        store(scratch, source + t * width, zero)
                    _read(
                        x, at + (first - before) * row + lane * x_at[2], row, x_at[2], before + steps, some, width,
                        scratch, source + missing * width,
                    )  # fmt: skip
                    for t in range(steps):
                        store(scratch, target + t * width, zero + bias)
                    for u in range(0, units, UNITS):
                        for t in range(steps):
                            h0, h1 = zero + rows[u, taps], zero + rows[u + 1, taps]
                            h2, h3 = zero + rows[u + 2, taps], zero + rows[u + 3, taps]
                            for k in range(taps):
                                now = load(scratch, source + (t + k) * width)
                                h0, h1 = h0 + now * rows[u, k], h1 + now * rows[u + 1, k]
                                h2, h3 = h2 + now * rows[u + 2, k], h3 + now * rows[u + 3, k]
                            h0, h1 = v.maximum(h0, zero), v.maximum(h1, zero)
                            h2, h3 = v.maximum(h2, zero), v.maximum(h3, zero)
                            out = load(scratch, target + t * width)
                            out = out + h0 * rows[u, taps + 1] + h1 * rows[u + 1, taps + 1]
                            out = out + h2 * rows[u + 2, taps + 1] + h3 * rows[u + 3, taps + 1]
                            store(scratch, target + t * width, out)
                    _write(
                        scratch, target, steps, some, width, y, to + first * to_row + lane * y_at[2], to_row, y_at[2]
                    )

    return compiled(forward, keep=True)
