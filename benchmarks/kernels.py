"""Kernels that only move memory: the limit that neurons are measured against."""

from numba import njit

from resofire.ops.neuron_scan import simd
from resofire.ops.neuron_scan.simd import load, prefetch, stream

WIDTH = simd.BYTES // 4
# Vectors between a load and the prefetch before it.
AHEAD = 64


@njit(nogil=True)
def copy(x, out, first, last):
    for i in range(first, last, WIDTH):
        prefetch(x, i + AHEAD * WIDTH)
        stream(out, i, load(x, i))


@njit(nogil=True)
def add(x, y, out, first, last):
    for i in range(first, last, WIDTH):
        prefetch(x, i + AHEAD * WIDTH)
        prefetch(y, i + AHEAD * WIDTH)
        stream(out, i, load(x, i) + load(y, i))
