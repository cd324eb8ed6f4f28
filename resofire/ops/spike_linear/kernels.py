"""The kernels of event-driven synapses, in Numba.

Spikes come as bits: 64-bit words [M, words], a row per time step, the first input in the lowest bit. Weights come
transposed and cut into tiles of TILE columns, [tiles, inputs, TILE], so that an active input is four whole vectors one
after the other. A group of time steps is processed tile by tile, so that the tile's rows stay in the L1 cache. Kernels
work on pointers (`simd.pointer`); functions that are part of them get nothing else.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..neuron_scan import TILE_BYTES, simd
from ..neuron_scan.kernels import compiled, fingerprint, inline
from ..neuron_scan.simd import add_wide, differs, hold, load, lowest, pointer, store, stream, zeros_like

VECTORS = TILE_BYTES // simd.BYTES  # four: their sums stay in registers, and their additions do not wait for each other
GROUP = 64  # time steps that go through a tile together
WIDE_GROUP = 128  # the same for the weight gradient, which reads a row of sums for each group and input


@inline
def list_active(bits, first, steps, words, starts, active, scale):
    """Lists the active inputs of some rows of bits, times `scale`: row t has active[starts[t]:starts[t + 1]]."""
    count = 0
    for t in range(steps):
        starts[t] = count
        for w in range(words):
            word = bits[(first + t) * words + w]
            while word != 0:
                active[count] = (64 * w + np.int64(lowest(word))) * scale
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
def add_tile(sums, at, width, v0, v1, v2, v3):
    """Adds a tile to float64 sums."""
    add_wide(sums, at, v0)
    add_wide(sums, at + width, v1)
    add_wide(sums, at + 2 * width, v2)
    add_wide(sums, at + 3 * width, v3)


@inline
def copy_row(source, at, target, to, columns):
    for j in range(columns):
        target[to + j] = source[at + j]


@inline
def write_tile(target, at, width, v0, v1, v2, v3, some, scratch, past_cache):
    """Writes a tile of which the target has only `some` columns; `scratch` has room for a whole one."""
    if some == VECTORS * width:
        put_tile(target, at, width, v0, v1, v2, v3, past_cache)
    else:
        store_tile(scratch, 0, width, v0, v1, v2, v3)
        copy_row(scratch, 0, target, at, some)


@functools.cache
def linear_kernel(width: int) -> Callable[..., Any]:
    """out = bias + the rows of active inputs, for the time steps first to last."""
    tag = fingerprint()

    def linear(first, last, bits, words, table, bias, out, columns, past_cache):
        _ = tag  # part of the cache key
        size = VECTORS * width
        numbers, room = np.empty(GROUP + 1 + GROUP * words * 64, np.int64), np.empty(size, out.dtype)
        starts, active, scratch = pointer(numbers), pointer(numbers[GROUP + 1 :]), pointer(room)
        bits, table, bias, out = pointer(bits), pointer(table), pointer(bias), pointer(out)
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
                    write_tile(out, at, width, v0, v1, v2, v3, some, scratch, past_cache)
        hold(numbers)
        hold(room)

    return compiled(linear, keep=True)


@inline
def _transpose(block):
    """Turns 64 words of 64 bits around: bit i of word j becomes bit j of word i."""
    half, mask = 32, np.uint64(0xFFFFFFFF)
    while half:
        j = 0
        while j < 64:
            swap = ((block[j] >> np.uint64(half)) ^ block[j + half]) & mask
            block[j] ^= swap << np.uint64(half)
            block[j + half] ^= swap
            j = (j + half + 1) & ~half
        half >>= 1
        mask ^= mask << np.uint64(half)


@inline
def _by_input(bits, words, group, steps, keep, dropping, block, when):
    """when[j, w]: the steps of a group at which input j was active, as words; the last row: all steps that count."""
    wide = WIDE_GROUP // 64
    for w in range(wide):
        some = min(64, max(0, steps - 64 * w))
        counts = np.uint64(0)
        for t in range(some):
            if not (dropping and keep[group + 64 * w + t] == 0):
                counts |= np.uint64(1) << np.uint64(t)
        when[64 * words * wide + w] = counts
        for column in range(words):
            for t in range(64):
                block[t] = bits[(group + 64 * w + t) * words + column] if t < some else np.uint64(0)
            _transpose(block)
            for i in range(64):
                when[(64 * column + i) * wide + w] = block[i] & counts


@inline
def weight_group(bits, words, group, steps, grads, columns, width, keep, dropping, block, when, scratch, sums):
    """Adds the gradients of one group of time steps to sums [tiles, rows, TILE], where rows = 64 words + 1: row j is
    the sum of the output's gradient over the steps at which input j was active, the last row that over all steps.

    With `dropping`, a step that `keep` holds 0 for does not count. `block`, `when`, `scratch` are room to work in."""
    size, inputs, wide = VECTORS * width, 64 * words, WIDE_GROUP // 64
    tiles = -(-columns // size)
    _by_input(bits, words, group, steps, keep, dropping, block, when)
    source, origin, pitch = grads, group * columns, columns
    if columns < tiles * size:
        source, origin, pitch = scratch, 0, tiles * size
        for t in range(steps):
            copy_row(grads, (group + t) * columns, scratch, t * pitch, columns)
    for tile in range(tiles):
        for j in range(inputs + 1):
            at = (tile * (inputs + 1) + j) * size
            v0, v1, v2, v3 = load_tile(sums, at, width)
            n0 = zeros_like(v0)
            n1, n2, n3, some = n0, n0, n0, np.uint64(0)
            for w in range(wide):
                word = when[j * wide + w]
                some |= word
                first = origin + 64 * w * pitch + tile * size
                while word != 0:
                    row = first + np.int64(lowest(word)) * pitch
                    n0 = n0 + load(source, row)
                    n1 = n1 + load(source, row + width)
                    n2 = n2 + load(source, row + 2 * width)
                    n3 = n3 + load(source, row + 3 * width)
                    word &= word - np.uint64(1)
            if some != 0:
                store_tile(sums, at, width, v0 + n0, v1 + n1, v2 + n2, v3 + n3)


@inline
def weight_room(words, columns, width, like):
    """What `weight_group` works in: `block` [64] and then `when`, and `scratch`."""
    padded = -(-columns // (VECTORS * width)) * VECTORS * width
    return (
        np.empty(64 + (64 * words + 1) * (WIDE_GROUP // 64), np.uint64),
        np.zeros(0 if padded == columns else WIDE_GROUP * padded, like.dtype),
    )


@functools.cache
def weight_kernel(width: int) -> Callable[..., Any]:
    """sums += the gradients of weights and bias over the time steps first to last; see `weight_group`."""
    tag = fingerprint()

    def weight(first, last, bits, words, grads, columns, sums):
        _ = tag  # part of the cache key
        words_room, room = weight_room(words, columns, width, grads)
        block, when, scratch = pointer(words_room), pointer(words_room[64:]), pointer(room)
        bits, grads, sums = pointer(bits), pointer(grads), pointer(sums)
        for group in range(first, last, WIDE_GROUP):
            steps = min(WIDE_GROUP, last - group)
            weight_group(bits, words, group, steps, grads, columns, width, bits, False, block, when, scratch, sums)
        hold(words_room)
        hold(room)

    return compiled(weight, keep=True)


@functools.cache
def pack_kernel(width: int) -> Callable[..., Any]:
    """The bits of the rows first to last of x. Returns whether all numbers in them are 0 or `amplitude`."""
    tag = fingerprint()

    def pack(first, last, x, columns, amplitude, bits, words):
        _ = tag  # part of the cache key
        room, other = np.zeros(width, x.dtype), np.uint64(0)
        x, bits, scratch = pointer(x), pointer(bits), pointer(room)
        for t in range(first, last):
            for w in range(words):
                bits[t * words + w] = 0
            for column in range(0, columns, width):
                at = t * columns + column
                if column + width <= columns:
                    value = load(x, at)
                else:
                    for j in range(columns - column, width):
                        scratch[j] = 0
                    copy_row(x, at, scratch, 0, columns - column)
                    value = load(scratch, 0)
                active = differs(value, 0.0)
                other |= active & differs(value, amplitude)
                bits[t * words + column // 64] |= active << np.uint64(column % 64)
        hold(room)
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
