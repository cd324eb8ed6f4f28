"""The kernels of event-driven synapses, in Numba.

Spikes come as bits: 64-bit words [M, words], a row per time step, the first input in the lowest bit. Weights come
transposed and cut into tiles of TILE columns, [tiles, inputs, TILE], so that an active input is four whole vectors one
after the other. A group of time steps goes through one tile after the other: the tile's rows stay in the nearest cache.
"""

import functools
import inspect
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..fused import simd
from ..fused.kernels import compiled, inline
from ..fused.simd import differs, load, lowest, store, stream

VECTORS = 4  # to a tile: their sums stay in registers, and their additions do not wait for each other
GROUP = 64  # time steps that go through a tile together
WIDE_GROUP = 256  # the same for the weight gradient, which reads a row of sums for each group and input


def tile_width(itemsize: int) -> int:
    return VECTORS * simd.BYTES // itemsize


@inline
def list_active(bits, first, steps, words, starts, active, scale):
    """Lists the active inputs of some rows of bits, times `scale`; those of row t are active[starts[t]:starts[t + 1]]."""
    count = 0
    for t in range(steps):
        starts[t] = count
        for w in range(words):
            word = bits[(first + t) * words + w]
            while word != 0:
                active[count] = (64 * w + lowest(word)) * scale
                count += 1
                word &= word - np.uint64(1)
    starts[steps] = count


@inline
def add_rows(table, base, active, begin, end, v0, v1, v2, v3, width):
    """Adds the rows table[base + active[k]:] to four vectors."""
    for k in range(begin, end):
        at = base + active[k]
        v0 = v0 + load(table, at)
        v1 = v1 + load(table, at + width)
        v2 = v2 + load(table, at + 2 * width)
        v3 = v3 + load(table, at + 3 * width)
    return v0, v1, v2, v3


@inline
def load_tile(array, at, width):
    return load(array, at), load(array, at + width), load(array, at + 2 * width), load(array, at + 3 * width)


@inline
def store_tile(array, at, width, v0, v1, v2, v3):
    store(array, at, v0)
    store(array, at + width, v1)
    store(array, at + 2 * width, v2)
    store(array, at + 3 * width, v3)


@inline
def put_tile(array, at, width, v0, v1, v2, v3, past_cache):
    if past_cache:
        stream(array, at, v0)
        stream(array, at + width, v1)
        stream(array, at + 2 * width, v2)
        stream(array, at + 3 * width, v3)
    else:
        store_tile(array, at, width, v0, v1, v2, v3)


@inline
def copy_row(source, at, target, to, columns):
    for j in range(columns):
        target[to + j] = source[at + j]


def fingerprint(*modules: Any) -> int:
    """See `fused.kernels`: what a kernel takes from other files is part of its key in the cache."""
    return zlib.crc32("".join(map(inspect.getsource, (simd, *modules))).encode())


@functools.cache
def linear_kernel(width: int) -> Callable[..., Any]:
    """out = bias + the rows of active inputs, for the time steps first to last."""
    tag = fingerprint()

    def linear(first, last, bits, words, table, bias, out, columns, past_cache):
        _ = tag  # part of the cache key
        size = VECTORS * width
        starts, active = np.empty(GROUP + 1, np.int64), np.empty(GROUP * words * 64, np.int64)
        scratch = np.empty(size, out.dtype)
        for group in range(first, last, GROUP):
            steps = min(GROUP, last - group)
            list_active(bits, group, steps, words, starts, active, size)
            for tile in range(-(-columns // size)):
                column = tile * size
                some = min(size, columns - column)
                base = tile * words * 64 * size
                b0, b1, b2, b3 = load_tile(bias, column, width)
                for t in range(steps):
                    v0, v1, v2, v3 = add_rows(table, base, active, starts[t], starts[t + 1], b0, b1, b2, b3, width)
                    at = (group + t) * columns + column
                    if some == size:
                        put_tile(out, at, width, v0, v1, v2, v3, past_cache)
                    else:
                        store_tile(scratch, 0, width, v0, v1, v2, v3)
                        copy_row(scratch, 0, out, at, some)

    return compiled(linear, keep=True)


@inline
def weight_group(
    bits, words, group, steps, grads, columns, width, keep, dropping, starts, active, position, ends, order, scratch, sums
):
    """Adds the gradients of one group of time steps to sums [tiles, rows, TILE], where rows = 64 words + 1: row j is
    the sum of the output's gradient over the steps at which input j was active, the last row that over all steps.

    With `dropping`, a step that `keep` holds 0 for does not count. The arrays behind it are room to work in."""
    size, inputs = VECTORS * width, 64 * words
    tiles = -(-columns // size)
    list_active(bits, group, steps, words, starts, active, 1)
    # Sort by input: how many steps each has, where its list ends, and the lists.
    position[:inputs] = 0
    for t in range(steps):
        if not (dropping and keep[group + t] == 0):
            for k in range(starts[t], starts[t + 1]):
                position[active[k]] += 1
    total = 0
    for j in range(inputs):
        total += position[j]
        position[j] = total - position[j]
        ends[j] = total
    whole = columns == tiles * size
    pitch = tiles * size
    begin = total
    for t in range(steps):
        if not (dropping and keep[group + t] == 0):
            at = (group + t) * columns if whole else t * pitch
            for k in range(starts[t], starts[t + 1]):
                j = active[k]
                order[position[j]] = at
                position[j] += 1
            order[begin] = at
            begin += 1
    ends[inputs] = begin
    if not whole:
        for t in range(steps):
            copy_row(grads, (group + t) * columns, scratch, t * pitch, columns)
    source = grads if whole else scratch
    for tile in range(tiles):
        begin = 0
        for j in range(inputs + 1):
            if ends[j] > begin:
                column = tile * size
                v0, v1, v2, v3 = load_tile(source, order[begin] + column, width)
                v0, v1, v2, v3 = add_rows(source, column, order, begin + 1, ends[j], v0, v1, v2, v3, width)
                at = (tile * (inputs + 1) + j) * size
                s0, s1, s2, s3 = load_tile(sums, at, width)
                store_tile(sums, at, width, s0 + v0, s1 + v1, s2 + v2, s3 + v3)
            begin = ends[j]


@functools.cache
def weight_kernel(width: int) -> Callable[..., Any]:
    """sums += the gradients of weights and bias over the time steps first to last; see `weight_group`."""
    tag = fingerprint()

    def weight(first, last, bits, words, grads, columns, sums):
        _ = tag  # part of the cache key
        size = VECTORS * width
        starts, active = np.empty(WIDE_GROUP + 1, np.int64), np.empty(WIDE_GROUP * words * 64, np.int64)
        position, ends = np.empty(words * 64, np.int64), np.empty(words * 64 + 1, np.int64)
        order = np.empty(WIDE_GROUP * (words * 64 + 1), np.int64)
        padded = -(-columns // size) * size
        scratch = np.zeros(0 if padded == columns else WIDE_GROUP * padded, grads.dtype)
        for group in range(first, last, WIDE_GROUP):
            weight_group(
                bits, words, group, min(WIDE_GROUP, last - group), grads, columns, width, starts, False, starts, active,
                position, ends, order, scratch, sums,
            )  # fmt: skip

    return compiled(weight, keep=True)


@functools.cache
def pack_kernel(width: int) -> Callable[..., Any]:
    """The bits of the rows first to last of x. Returns whether all numbers in them are 0 or `amplitude`."""
    tag = fingerprint()

    def pack(first, last, x, columns, amplitude, bits, words):
        _ = tag  # part of the cache key
        scratch, other = np.zeros(width, x.dtype), np.uint64(0)
        for t in range(first, last):
            for w in range(words):
                bits[t * words + w] = 0
            for column in range(0, columns, width):
                at = t * columns + column
                if column + width <= columns:
                    value = load(x, at)
                else:
                    scratch[:] = 0
                    copy_row(x, at, scratch, 0, columns - column)
                    value = load(scratch, 0)
                active = differs(value, 0.0)
                other |= active & differs(value, amplitude)
                bits[t * words + column // 64] |= active << np.uint64(column % 64)
        return other == 0

    return compiled(pack, keep=True)


@functools.cache
def first_kernel() -> Callable[..., Any]:
    """The first number of x that is not 0; 0 if there is none."""

    def first(x):
        for value in x:
            if value != 0:
                return value
        return x.dtype.type(0)

    return compiled(first, keep=True)
