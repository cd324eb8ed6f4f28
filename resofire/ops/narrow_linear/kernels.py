"""The kernels of the narrow layer, in Numba. Of the rows of weights and of sums the first is the bias's."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..neuron_scan.kernels import compiled, fingerprint
from ..neuron_scan.simd import hold, pointer, zeros_like
from ..spike_linear import kernels as tiles
from ..spike_linear.kernels import GROUP, VECTORS, add_tile, copy_row, load_tile, write_tile


@functools.cache
def linear_kernel(width: int) -> Callable[..., Any]:
    """out = rows[0] + Σ x[t, i] rows[1 + i] for the time steps first to last."""
    tag = fingerprint(tiles)

    def linear(first, last, x, inputs, rows, out, columns, past_cache):
        _ = tag  # part of the cache key
        size = VECTORS * width
        pitch = -(-columns // size) * size
        room = np.empty(size, out.dtype)
        x, rows, out, scratch = pointer(x), pointer(rows), pointer(out), pointer(room)
        for group in range(first, last, GROUP):
            for column in range(0, columns, size):
                some = min(size, columns - column)
                b0, b1, b2, b3 = load_tile(rows, column, width)
                w0, w1, w2, w3 = load_tile(rows, pitch + column, width)
                for t in range(group, min(group + GROUP, last)):
                    a = x[t * inputs]
                    v0, v1, v2, v3 = b0 + w0 * a, b1 + w1 * a, b2 + w2 * a, b3 + w3 * a
                    for i in range(1, inputs):
                        a = x[t * inputs + i]
                        y0, y1, y2, y3 = load_tile(rows, (1 + i) * pitch + column, width)
                        v0, v1, v2, v3 = v0 + y0 * a, v1 + y1 * a, v2 + y2 * a, v3 + y3 * a
                    at = t * columns + column
                    write_tile(out, at, width, v0, v1, v2, v3, some, scratch, past_cache)
        hold(room)

    return compiled(linear, keep=True)


@functools.cache
def gradient_kernel(width: int) -> Callable[..., Any]:
    """sums[0] += Σ grads and sums[1 + i] += Σ x[t, i] grads over the time steps first to last."""
    tag = fingerprint(tiles)

    def gradient(first, last, x, inputs, grads, columns, sums):
        _ = tag  # part of the cache key
        size = VECTORS * width
        pitch = -(-columns // size) * size
        room = np.zeros(GROUP * size, grads.dtype)
        x, grads, sums, scratch = pointer(x), pointer(grads), pointer(sums), pointer(room)
        for group in range(first, last, GROUP):
            steps = min(GROUP, last - group)
            for column in range(0, columns, size):
                some = min(size, columns - column)
                source, begin, row = grads, group * columns + column, columns
                if some < size:
                    for t in range(steps):
                        copy_row(grads, begin + t * columns, scratch, t * size, some)
                    source, begin, row = scratch, 0, size
                for i in range(inputs):
                    g0, g1, g2, g3 = load_tile(source, begin, width)
                    s0 = zeros_like(g0)
                    s1, s2, s3, q0, q1, q2, q3 = s0, s0, s0, s0, s0, s0, s0
                    for t in range(steps):
                        a = x[(group + t) * inputs + i]
                        g0, g1, g2, g3 = load_tile(source, begin + t * row, width)
                        q0, q1, q2, q3 = q0 + g0 * a, q1 + g1 * a, q2 + g2 * a, q3 + g3 * a
                        if i == 0:
                            s0, s1, s2, s3 = s0 + g0, s1 + g1, s2 + g2, s3 + g3
                    add_tile(sums, (1 + i) * pitch + column, width, q0, q1, q2, q3)
                    if i == 0:
                        add_tile(sums, column, width, s0, s1, s2, s3)
        hold(room)

    return compiled(gradient, keep=True)
