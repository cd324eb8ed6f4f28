"""The kernels of the state space, in Numba.

A task is one sequence and a group of lanes, as in `neuron_scan.cpu`. Within a chunk of time steps and a tile of lanes,
PAIRS complex states run at a time, in registers from the first step of the chunk to the last; all of them add to one
tile of outputs, which stays in the first-level cache. Two of them hide the latency of each other's products, and with
their coefficients just fit into 32 registers of 64 bytes.

Memory, P complex states padded to an even number, rows of `pitch` lanes:

    coefs [4, P, pitch] = Re Ā, Im Ā, Re w, Im w      state, grad_state [B, 2, P, pitch] = Re h, Im h
    sums [B, 4, P, pitch], float64                    kept [chunks, 2, P, pitch]: h before each chunk

`ahead` kernels run backwards in time, read h before the step instead of after it, have no D, and add to their output.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..neuron_scan import CHUNK
from ..neuron_scan.kernels import _place, compiled, fingerprint, inline
from ..neuron_scan.simd import add_wide, load, store, zeros_like
from . import PAIRS, masked
from .masked import load_some, store_some


@inline
def _read(source, at, row, lane, steps, lanes, width, tile, base):
    """tile[t, j] = source[at + t * row + j * lane], and 0 in the lanes that the source does not have."""
    for t in range(steps):
        here, there = at + t * row, base + t * width
        if lane == 1 and lanes == width:
            store(tile, there, load(source, here))
        elif lane == 1:
            store(tile, there, load_some(source, here, lanes))
        else:
            for j in range(lanes):
                tile[there + j] = source[here + j * lane]
            for j in range(lanes, width):
                tile[there + j] = 0


@inline
def _write(tile, base, steps, lanes, width, target, at, row, lane):
    """The reverse of `_read`; lanes beyond the target's are dropped."""
    for t in range(steps):
        here, there = base + t * width, at + t * row
        if lane == 1 and lanes == width:
            store(target, there, load(tile, here))
        elif lane == 1:
            store_some(target, there, load(tile, here), lanes)
        else:
            for j in range(lanes):
                target[there + j * lane] = tile[here + j]


@inline
def _aligned(array):
    """The first element of an array that lies at a multiple of 64 bytes."""
    return (-(array.ctypes.data // array.itemsize)) % (64 // array.itemsize)


@functools.cache
def forward_kernel(width: int, ahead: bool) -> Callable[..., Any]:
    """y = Re Σ w h + D x, or y += Re Σ w h."""
    tag, size = fingerprint(masked), CHUNK * width

    def forward(plan, tasks, lanes, x, x_at, y, y_at, coefs, through, pairs, pitch, state, kept):
        _ = tag  # part of the cache key
        span = pairs * pitch
        scratch = np.empty(2 * size + width, x.dtype)
        source = _aligned(scratch)
        target = source + size
        for i in range(tasks.shape[0]):
            sequence, length = tasks[i, 0], plan[tasks[i, 0], 2]
            at, row = _place(plan, sequence, x_at, ahead)
            to, to_row = _place(plan, sequence, y_at, ahead)
            for first in range(0, length, CHUNK):
                steps = min(CHUNK, length - first)
                keep = (plan[sequence, 3] + first // CHUNK) * 2 * span
                for lane in range(tasks[i, 1], tasks[i, 2], width):
                    some = min(width, lanes - lane)
                    into = to + first * to_row + lane * y_at[2]
                    _read(x, at + first * row + lane * x_at[2], row, x_at[2], steps, some, width, scratch, source)
                    if ahead:
                        _read(y, into, to_row, y_at[2], steps, some, width, scratch, target)
                    else:
                        d = load(through, lane)
                        for t in range(steps):
                            store(scratch, target + t * width, d * load(scratch, source + t * width))
                    for k in range(0, pairs, PAIRS):
                        c, s, m = k * pitch + lane, sequence * 2 * span + k * pitch + lane, keep + k * pitch + lane
                        a0, b0, a1, b1 = _four(coefs, c, span, pitch)
                        w0, v0, w1, v1 = _four(coefs, 2 * span + c, span, pitch)
                        r0, i0, r1, i1 = _four(state, s, span, pitch)
                        _put_four(kept, m, span, pitch, r0, i0, r1, i1)
                        for t in range(steps):
                            now = load(scratch, source + t * width)
                            out = load(scratch, target + t * width)
                            if ahead:
                                out = out + w0 * r0 - v0 * i0 + (w1 * r1 - v1 * i1)
                            r0, i0 = a0 * r0 + (now - b0 * i0), a0 * i0 + b0 * r0
                            r1, i1 = a1 * r1 + (now - b1 * i1), a1 * i1 + b1 * r1
                            if not ahead:
                                out = out + w0 * r0 - v0 * i0 + (w1 * r1 - v1 * i1)
                            store(scratch, target + t * width, out)
                        _put_four(state, s, span, pitch, r0, i0, r1, i1)
                    _write(scratch, target, steps, some, width, y, into, to_row, y_at[2])

    return compiled(forward, keep=True)


@functools.cache
def backward_kernel(width: int, ahead: bool) -> Callable[..., Any]:
    """The gradients of x, of the coefficients, and of the state before the first step (in place in `grad_state`).

    Each chunk runs once more from the state before it, which notes h before every step, and then back.
    """
    tag, size = fingerprint(masked), CHUNK * width

    def backward(
        plan, tasks, lanes, grads, grads_at, x, x_at, grad_x, out_at, coefs, through, pairs, pitch, kept, grad_state,
        sums, through_sums,
    ):  # fmt: skip
        _ = tag  # part of the cache key
        span = pairs * pitch
        scratch = np.empty((2 * PAIRS + 3) * size + (2 * PAIRS + 2) * width, x.dtype)
        source = _aligned(scratch)
        target, notes = source + size, source + 2 * size
        # In front of the gradients of the chunk lies a zero, for the step before the first.
        before = notes + 2 * PAIRS * (size + width)
        pull = before + width
        zero = zeros_like(load(scratch, 0))
        store(scratch, before, zero)
        for i in range(tasks.shape[0]):
            sequence, length = tasks[i, 0], plan[tasks[i, 0], 2]
            at, row = _place(plan, sequence, x_at, ahead)
            from_, from_row = _place(plan, sequence, grads_at, ahead)
            to, to_row = _place(plan, sequence, out_at, ahead)
            for chunk in range(-(-length // CHUNK) - 1, -1, -1):
                first = chunk * CHUNK
                steps = min(CHUNK, length - first)
                keep = (plan[sequence, 3] + chunk) * 2 * span
                for lane in range(tasks[i, 1], tasks[i, 2], width):
                    some = min(width, lanes - lane)
                    into = to + first * to_row + lane * out_at[2]
                    _read(x, at + first * row + lane * x_at[2], row, x_at[2], steps, some, width, scratch, source)
                    _read(
                        grads, from_ + first * from_row + lane * grads_at[2], from_row, grads_at[2], steps, some,
                        width, scratch, pull,
                    )  # fmt: skip
                    if ahead:
                        _read(grad_x, into, to_row, out_at[2], steps, some, width, scratch, target)
                    else:
                        d, total = load(through, lane), zero
                        for t in range(steps):
                            g = load(scratch, pull + t * width)
                            total = total + g * load(scratch, source + t * width)
                            store(scratch, target + t * width, d * g)
                        add_wide(through_sums, sequence * pitch + lane, total)
                    for k in range(0, pairs, PAIRS):
                        c, m = k * pitch + lane, keep + k * pitch + lane
                        a0, b0, a1, b1 = _four(coefs, c, span, pitch)
                        r0, i0, r1, i1 = _four(kept, m, span, pitch)
                        for t in range(steps):
                            _put_four(scratch, notes + 4 * t * width, width, 2 * width, r0, i0, r1, i1)
                            now = load(scratch, source + t * width)
                            r0, i0 = a0 * r0 + (now - b0 * i0), a0 * i0 + b0 * r0
                            r1, i1 = a1 * r1 + (now - b1 * i1), a1 * i1 + b1 * r1
                        _put_four(scratch, notes + 4 * steps * width, width, 2 * width, r0, i0, r1, i1)
                        for j in range(PAIRS):
                            c = (k + j) * pitch + lane
                            s, n = sequence * 2 * span + c, sequence * 4 * span + c
                            a, b = load(coefs, c), load(coefs, span + c)
                            w, v = load(coefs, 2 * span + c), load(coefs, 3 * span + c)
                            p, q = load(grad_state, s), load(grad_state, span + s)
                            sum_a, sum_b, sum_w, sum_v = zero, zero, zero, zero
                            note = notes + (4 * steps + 2 * j) * width
                            re, im = load(scratch, note), load(scratch, note + width)
                            g = load(scratch, pull + (steps - 1) * width)
                            if not ahead:
                                p, q = p + w * g, q - v * g
                            for t in range(steps - 1, -1, -1):
                                note -= 4 * width
                                if ahead:
                                    g = load(scratch, pull + t * width)
                                else:
                                    sum_w, sum_v = sum_w + g * re, sum_v - g * im
                                    g = load(scratch, pull + (t - 1) * width)
                                re, im = load(scratch, note), load(scratch, note + width)
                                store(scratch, target + t * width, load(scratch, target + t * width) + p)
                                sum_a = sum_a + p * re + q * im
                                sum_b = sum_b + q * re - p * im
                                # Two products in a row at most: their latency is what a step takes.
                                p, q = a * p + (b * q + w * g), a * q - (b * p + v * g)
                                if ahead:
                                    sum_w, sum_v = sum_w + g * re, sum_v - g * im
                            store(grad_state, s, p)
                            store(grad_state, span + s, q)
                            add_wide(sums, n, sum_a)
                            add_wide(sums, span + n, sum_b)
                            add_wide(sums, 2 * span + n, sum_w)
                            add_wide(sums, 3 * span + n, sum_v)
                    _write(scratch, target, steps, some, width, grad_x, into, to_row, out_at[2])

    return compiled(backward, keep=True)


@inline
def _four(array, at, part, pair):
    """Real and imaginary part of two complex rows: `part` lies between the parts, `pair` between the rows."""
    return load(array, at), load(array, at + part), load(array, at + pair), load(array, at + part + pair)


@inline
def _put_four(array, at, part, pair, r0, i0, r1, i1):
    store(array, at, r0)
    store(array, at + part, i0)
    store(array, at + pair, r1)
    store(array, at + part + pair, i1)
