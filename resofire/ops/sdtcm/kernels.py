"""The kernels of a fused SD-TCM block, in Numba: what lies between its temporal neuron and its matrix products.

Spikes are bits and weights are tiles, as in `resofire.ops.spike_linear.kernels`, whose parts these kernels are made of.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from .. import surrogate as surrogates
from ..neuron_scan.kernels import compiled, fingerprint, inline
from ..neuron_scan.simd import hold, load, pointer, store, store_mask
from ..spike_linear import kernels as events
from ..spike_linear.kernels import (
    GROUP,
    VECTORS,
    WIDE_GROUP,
    add_rows,
    copy_row,
    list_active,
    load_tile,
    store_tile,
    weight_group,
    weight_room,
    write_tile,
)


@inline
def _fired(bits, at, threshold, column, width, v0, v1, v2, v3):
    """The bits of a tile; `at` counts bytes."""
    step = width // 8
    store_mask(bits, at, v0, load(threshold, column))
    store_mask(bits, at + step, v1, load(threshold, column + width))
    store_mask(bits, at + 2 * step, v2, load(threshold, column + 2 * width))
    store_mask(bits, at + 3 * step, v3, load(threshold, column + 3 * width))


@functools.cache
def mix_kernel(width: int) -> Callable[..., Any]:
    """From the temporal spikes on: R = U + Linear(S), S' = [R ≥ V], U⁺ = R + Linear(S'), for steps first to last.

    A time step whose `keep` is 0 omits the output of that Linear (dropout)."""
    tag = fingerprint(events)

    def mix(
        first, last, u, columns, token_bits, token_words, token_table, token_bias, token_keep, threshold, channel_bits,
        channel_bytes, channel_words, channel_table, channel_bias, channel_keep, r, out, dropping, r_past_cache,
        out_past_cache,
    ):  # fmt: skip
        _ = tag  # part of the cache key
        size = VECTORS * width
        tiles = -(-columns // size)
        pitch = tiles * size
        numbers = np.empty(GROUP + 1 + GROUP * 64 * max(token_words, channel_words), np.int64)
        room = np.zeros(GROUP * pitch + size, u.dtype)
        starts, active = pointer(numbers), pointer(numbers[GROUP + 1 :])
        near, scratch = pointer(room), pointer(room[GROUP * pitch :])
        u, r, out, threshold = pointer(u), pointer(r), pointer(out), pointer(threshold)
        token_bits, token_table, token_bias = pointer(token_bits), pointer(token_table), pointer(token_bias)
        channel_bits, channel_table, channel_bias = pointer(channel_bits), pointer(channel_table), pointer(channel_bias)
        channel_bytes, token_keep, channel_keep = pointer(channel_bytes), pointer(token_keep), pointer(channel_keep)
        for group in range(first, last, GROUP):
            steps = min(GROUP, last - group)
            list_active(token_bits, group, steps, token_words, starts, active, size)
            for tile in range(tiles):
                column = tile * size
                some = min(size, columns - column)
                base = tile * token_words * 64 * size
                b0, b1, b2, b3 = load_tile(token_bias, column, width)
                for t in range(steps):
                    at = (group + t) * columns + column
                    if some == size:
                        u0, u1, u2, u3 = load_tile(u, at, width)
                    else:
                        copy_row(u, at, scratch, 0, some)
                        u0, u1, u2, u3 = load_tile(scratch, 0, width)
                    if not (dropping and token_keep[group + t] == 0):
                        v0, v1, v2, v3 = add_rows(
                            token_table, base, active, starts[t], starts[t + 1], b0, b1, b2, b3, width
                        )
                        u0, u1, u2, u3 = u0 + v0, u1 + v1, u2 + v2, u3 + v3
                    store_tile(near, t * pitch + column, width, u0, u1, u2, u3)
                    write_tile(r, at, width, u0, u1, u2, u3, some, scratch, r_past_cache)
                    byte = (group + t) * channel_words * 8 + column // 8
                    _fired(channel_bytes, byte, threshold, column, width, u0, u1, u2, u3)
            list_active(channel_bits, group, steps, channel_words, starts, active, size)
            for tile in range(tiles):
                column = tile * size
                some = min(size, columns - column)
                base = tile * channel_words * 64 * size
                b0, b1, b2, b3 = load_tile(channel_bias, column, width)
                for t in range(steps):
                    at = (group + t) * columns + column
                    u0, u1, u2, u3 = load_tile(near, t * pitch + column, width)
                    if not (dropping and channel_keep[group + t] == 0):
                        v0, v1, v2, v3 = add_rows(
                            channel_table, base, active, starts[t], starts[t + 1], b0, b1, b2, b3, width
                        )
                        u0, u1, u2, u3 = u0 + v0, u1 + v1, u2 + v2, u3 + v3
                    write_tile(out, at, width, u0, u1, u2, u3, some, scratch, out_past_cache)
        hold(numbers)
        hold(room)

    return compiled(mix, keep=True)


@functools.cache
def unmix_kernel(width: int, slope: Callable[..., float], vector: bool) -> Callable[..., Any]:
    """Back through the same, for steps first to last.

    `grads` is the gradient of U⁺, `x` comes as that of S' and leaves as that of R: grads + (x + more) σ'(R - V). The
    gradients of both Linears are added to their sums (see `weight_group`). `vector`: whether `slope` takes vectors."""
    slope = getattr(slope, "py_func", slope)  # it may have been compiled already
    tag = fingerprint(events, surrogates, slope)
    slope = register_jitable(slope)

    def unmix(
        first, last, grads, x, r, columns, threshold, more, numbers, token_bits, token_words, token_keep,
        channel_bits, channel_words, channel_keep, dropping, token_sums, channel_sums,
    ):  # fmt: skip
        _ = tag  # part of the cache key
        words_room, room = weight_room(max(token_words, channel_words), columns, width, x)
        block, when, scratch = pointer(words_room), pointer(words_room[64:]), pointer(room)
        grads, x, r = pointer(grads), pointer(x), pointer(r)
        token_bits, token_keep, token_sums = pointer(token_bits), pointer(token_keep), pointer(token_sums)
        channel_bits, channel_keep, channel_sums = pointer(channel_bits), pointer(channel_keep), pointer(channel_sums)
        for group in range(first, last, WIDE_GROUP):
            steps = min(WIDE_GROUP, last - group)
            weight_group(
                channel_bits, channel_words, group, steps, grads, columns, width, channel_keep, dropping, block, when,
                scratch, channel_sums,
            )  # fmt: skip
            begin, end = group * columns, (group + steps) * columns
            if vector:
                for i in range(begin, end - width + 1, width):
                    store(x, i, load(grads, i) + (load(x, i) + more) * slope(load(r, i) - threshold, *numbers))
                begin = end - (end - begin) % width
            for i in range(begin, end):
                x[i] = grads[i] + (x[i] + more) * slope(r[i] - threshold, *numbers)
            weight_group(
                token_bits, token_words, group, steps, x, columns, width, token_keep, dropping, block, when, scratch,
                token_sums,
            )  # fmt: skip
        hold(words_room)
        hold(room)

    return compiled(unmix, keep=slope.__module__ == surrogates.__name__)
