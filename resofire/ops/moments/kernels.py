"""The kernels of moments, in Numba."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..neuron_scan.kernels import compiled, fingerprint
from ..neuron_scan.simd import hold, pointer, zeros_like
from ..spike_linear import kernels as events
from ..spike_linear.kernels import GROUP, VECTORS, add_tile, copy_row, load_tile, store_tile

SHORT = 32  # steps whose sum stays in the type of x; sums of sums are float64


@functools.cache
def sums_kernel(width: int) -> Callable[..., Any]:
    """sums[piece] = Σ (x - centre) and Σ (x - centre)² over its steps; `share` lists pieces (first, end, sequence)."""
    tag = fingerprint(events)

    def add(pieces, share, x, lanes, centre, sums):
        _ = tag  # part of the cache key
        size = VECTORS * width
        pitch = -(-lanes // size) * size
        room = np.zeros(SHORT * size, x.dtype)
        x, centre, sums, scratch = pointer(x), pointer(centre), pointer(sums), pointer(room)
        for piece in share:
            for column in range(0, lanes, size):
                some = min(size, lanes - column)
                c0, c1, c2, c3 = load_tile(centre, column, width)
                at = 2 * piece * pitch + column
                for first in range(pieces[piece, 0], pieces[piece, 1], SHORT):
                    steps = min(SHORT, pieces[piece, 1] - first)
                    source, begin, row = x, first * lanes + column, lanes
                    if some < size:
                        for t in range(steps):
                            copy_row(x, begin + t * lanes, scratch, t * size, some)
                        source, begin, row = scratch, 0, size
                    s0 = zeros_like(c0)
                    s1, s2, s3, q0, q1, q2, q3 = s0, s0, s0, s0, s0, s0, s0
                    for t in range(steps):
                        v0, v1, v2, v3 = load_tile(source, begin + t * row, width)
                        v0, v1, v2, v3 = v0 - c0, v1 - c1, v2 - c2, v3 - c3
                        s0, s1, s2, s3 = s0 + v0, s1 + v1, s2 + v2, s3 + v3
                        q0, q1, q2, q3 = q0 + v0 * v0, q1 + v1 * v1, q2 + v2 * v2, q3 + v3 * v3
                    add_tile(sums, at, width, s0, s1, s2, s3)
                    add_tile(sums, at + pitch, width, q0, q1, q2, q3)
        hold(room)

    return compiled(add, keep=True)


@functools.cache
def affine_kernel(width: int, onto: bool) -> Callable[..., Any]:
    """out = constant[sequence] + factor x over some pieces (first, end, sequence); `onto` adds to what out holds.

    The rows of constant and factor are padded to whole tiles, those of x and out are not."""
    tag = fingerprint(events)

    def affine(pieces, x, lanes, constant, factor, out):
        _ = tag  # part of the cache key
        size = VECTORS * width
        pitch = -(-lanes // size) * size
        room = np.zeros(2 * size, x.dtype)
        near, far = pointer(room), pointer(room[size:])
        x, constant, factor, out = pointer(x), pointer(constant), pointer(factor), pointer(out)
        for i in range(pieces.shape[0]):
            for group in range(pieces[i, 0], pieces[i, 1], GROUP):
                for column in range(0, lanes, size):
                    some = min(size, lanes - column)
                    c0, c1, c2, c3 = load_tile(constant, pieces[i, 2] * pitch + column, width)
                    f0, f1, f2, f3 = load_tile(factor, column, width)
                    for t in range(group, min(group + GROUP, pieces[i, 1])):
                        source, target, at = x, out, t * lanes + column
                        if some < size:
                            copy_row(x, at, near, 0, some)
                            copy_row(out, at, far, 0, some)
                            source, target, at = near, far, 0
                        v0, v1, v2, v3 = load_tile(source, at, width)
                        v0, v1, v2, v3 = c0 + f0 * v0, c1 + f1 * v1, c2 + f2 * v2, c3 + f3 * v3
                        if onto:
                            o0, o1, o2, o3 = load_tile(target, at, width)
                            v0, v1, v2, v3 = o0 + v0, o1 + v1, o2 + v2, o3 + v3
                        store_tile(target, at, width, v0, v1, v2, v3)
                        if some < size:
                            copy_row(far, 0, out, t * lanes + column, some)
        hold(room)

    return compiled(affine, keep=True)
