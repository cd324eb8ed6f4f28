"""The kernels of the fused scan, in Numba: one vector of lanes through one chunk of time, and the loops around it.

Compiled code: the types are Numba's, taken from the call. The walk over tasks, chunks and tiles is in the two kernels
at the end; what happens to a tile stands once, in the functions before them, which are inlined so that LLVM sees the
flags that a kernel fixes and drops what they rule out.
"""

import functools
import inspect
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload, register_jitable

from .. import surrogate as surrogates
from . import CHUNK, simd
from .simd import add_wide, load, prefetch, store, stream, where_ge, zeros_like

_NONE, _SOFT, _HARD = range(3)
RESETS = {"none": _NONE, "soft": _SOFT, "hard": _HARD}

_inline = njit(error_model="numpy", fastmath={"contract"}, forceinline=True)


@overload(surrogates.like)
def _like(x, value):
    kind = x.dtype if isinstance(x, simd.Vector) else x
    return lambda x, value: kind(value)


@_inline
def _put(array, at, value, past_cache):
    if past_cache:
        stream(array, at, value)
    else:
        store(array, at, value)


@_inline
def _gather(source, at, row, lane, steps, lanes, width, tile):
    """tile[t, j] = source[at + t * row + j * lane], and 0 in the lanes that the source does not have."""
    for t in range(steps):
        for j in range(lanes):
            tile[t * width + j] = source[at + t * row + j * lane]
        for j in range(lanes, width):
            tile[t * width + j] = 0


@_inline
def _scatter(tile, steps, lanes, width, target, at, row, lane):
    for t in range(steps):
        for j in range(lanes):
            target[at + t * row + j * lane] = tile[t * width + j]


@_inline
def _after_reset(peak, threshold, reset):
    if reset == _SOFT:
        return where_ge(peak, threshold, peak - threshold, peak)
    if reset == _HARD:
        return where_ge(peak, threshold, 0.0, peak)
    return peak


@_inline
def _forward_tile(
    current, at, row, spikes, to, to_row, past_cache, steps, coefs, pitch, lane, state, here, span, kept, keep,
    kept_span, resonant, reset,
):  # fmt: skip
    """`steps` steps of one vector of lanes. state[here] holds v (and r one span on), which is kept at kept[keep]."""
    v = load(state, here)
    store(kept, keep, v)
    if resonant:
        a, b = load(coefs, lane), load(coefs, pitch + lane)
        d, threshold = load(coefs, 2 * pitch + lane), load(coefs, 3 * pitch + lane)
        r = load(state, span + here)
        store(kept, kept_span + keep, r)
        for _ in range(steps):
            peak = a * v - b * r + d * load(current, at)
            prefetch(current, at + CHUNK * row)
            r = b * v + a * r
            _put(spikes, to, where_ge(peak, threshold, 1.0, 0.0), past_cache)
            v = _after_reset(peak, threshold, reset)
            at += row
            to += to_row
        store(state, span + here, r)
    else:
        a, threshold = load(coefs, lane), load(coefs, pitch + lane)
        for _ in range(steps):
            peak = a * v + load(current, at)
            prefetch(current, at + CHUNK * row)
            _put(spikes, to, where_ge(peak, threshold, 1.0, 0.0), past_cache)
            v = _after_reset(peak, threshold, reset)
            at += row
            to += to_row
    store(state, here, v)


@_inline
def _again_tile(
    current, at, row, steps, coefs, pitch, lane, kept, keep, kept_span, notes, note, slopes, width, slope,
    numbers, resonant, reset,
):  # fmt: skip
    """Walks a chunk once more from its checkpoint. Notes three vectors a step, the state v and r before it and u,
    and after those of the chunk one a step, the slope of u - V."""
    v = load(kept, keep)
    if resonant:
        a, b = load(coefs, lane), load(coefs, pitch + lane)
        d, threshold = load(coefs, 2 * pitch + lane), load(coefs, 3 * pitch + lane)
        r = load(kept, kept_span + keep)
        for _ in range(steps):
            store(notes, note, v)
            store(notes, note + width, r)
            peak = a * v - b * r + d * load(current, at)
            prefetch(current, at - CHUNK * row)
            r = b * v + a * r
            store(notes, slopes, slope(peak - threshold, *numbers))
            if reset != _NONE:
                store(notes, note + 2 * width, peak)
            v = _after_reset(peak, threshold, reset)
            at += row
            note += 3 * width
            slopes += width
    else:
        a, threshold = load(coefs, lane), load(coefs, pitch + lane)
        for _ in range(steps):
            store(notes, note, v)
            peak = a * v + load(current, at)
            prefetch(current, at - CHUNK * row)
            store(notes, slopes, slope(peak - threshold, *numbers))
            if reset != _NONE:
                store(notes, note + 2 * width, peak)
            v = _after_reset(peak, threshold, reset)
            at += row
            note += 3 * width
            slopes += width


@_inline
def _through_spike(grad_spike, grad_v, slope, peak, threshold, reset, full):
    """The gradient that reaches u_t through the spike: s_t itself, and with `full` the one inside the reset."""
    if full and reset == _SOFT:
        return (grad_spike - threshold * grad_v) * slope
    if full and reset == _HARD:
        return (grad_spike - peak * grad_v) * slope
    return grad_spike * slope


@_inline
def _backward_tile(
    current, at, row, grads, from_, from_row, grad_current, to, to_row, past_cache, steps, coefs, pitch, lane,
    notes, note, slopes, width, grad_state, here, span, sums, resonant, reset, full,
):  # fmt: skip
    """Walks a chunk backwards. grad_state[here] holds the gradient of v (and of r one span on) and is carried on."""
    at += (steps - 1) * row
    from_ += (steps - 1) * from_row
    to += (steps - 1) * to_row
    note += (steps - 1) * 3 * width
    slopes += (steps - 1) * width
    grad_v = load(grad_state, here)
    sum_a = zeros_like(grad_v)
    sum_b, sum_d, sum_threshold = sum_a, sum_a, sum_a
    a = load(coefs, lane)
    if resonant:
        b, d, threshold = load(coefs, pitch + lane), load(coefs, 2 * pitch + lane), load(coefs, 3 * pitch + lane)
        grad_r = load(grad_state, span + here)
    else:
        b, d, threshold, grad_r = a, a, load(coefs, pitch + lane), a
    peak = a
    for _ in range(steps):
        if reset != _NONE:
            peak = load(notes, note + 2 * width)
        slope = load(notes, slopes)
        prefetch(grads, from_ - CHUNK * from_row)
        through = _through_spike(load(grads, from_), grad_v, slope, peak, threshold, reset, full)
        sum_threshold = sum_threshold - through
        if reset == _SOFT:
            sum_threshold = sum_threshold - where_ge(peak, threshold, grad_v, 0.0)
        elif reset == _HARD:
            grad_v = where_ge(peak, threshold, 0.0, grad_v)
        grad_u = grad_v + through
        v = load(notes, note)
        if resonant:
            r = load(notes, note + width)
            sum_a = sum_a + (grad_u * v + grad_r * r)
            sum_b = sum_b + (grad_r * v - grad_u * r)
            sum_d = sum_d + grad_u * load(current, at)
            _put(grad_current, to, d * grad_u, past_cache)
            grad_v = a * grad_u + b * grad_r
            grad_r = a * grad_r - b * grad_u
        else:
            sum_a = sum_a + grad_u * v
            _put(grad_current, to, grad_u, past_cache)
            grad_v = a * grad_u
        at -= row
        from_ -= from_row
        to -= to_row
        note -= 3 * width
        slopes -= width
    store(grad_state, here, grad_v)
    add_wide(sums, here, sum_a)
    if resonant:
        store(grad_state, span + here, grad_r)
        add_wide(sums, span + here, sum_b)
        add_wide(sums, 2 * span + here, sum_d)
        add_wide(sums, 3 * span + here, sum_threshold)
    else:
        add_wide(sums, span + here, sum_threshold)


@register_jitable
def _unchanged(x, *numbers):
    return x


@_inline
def _place(plan, sequence, strides, reverse):
    """Where a sequence's first step lies in a tensor of these strides, and how far it is to the next."""
    row = strides[1]
    at = plan[sequence, 0] * strides[0] + plan[sequence, 1] * row
    if reverse:
        return at + (plan[sequence, 2] - 1) * row, -row
    return at, row


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that Numba could write its cache to: compile in every process
        return njit(**options)(function)


def _fingerprint(*functions: Callable[..., Any]) -> int:
    """Numba's cache looks at the file of the kernel only; this makes a change in what the kernel calls a miss."""
    code = inspect.getsource(simd).encode()
    for function in functions:
        code += function.__code__.co_code + repr(function.__code__.co_consts).encode()
    return zlib.crc32(code)


@functools.cache
def forward_kernel(width: int, resonant: bool, reset: int) -> Callable[..., Any]:
    tag = _fingerprint()

    def forward(
        plan, tasks, lanes, current, current_at, spikes, spikes_at, past_cache, coefs, pitch, state, kept,
        reverse,
    ):  # fmt: skip
        _ = tag  # part of the cache key
        span, kept_span = plan.shape[0] * pitch, kept.size // (2 if resonant else 1)
        whole = current_at[2] == 1 and spikes_at[2] == 1
        tile, out = np.empty(CHUNK * width, current.dtype), np.empty(CHUNK * width, current.dtype)
        for i in range(tasks.shape[0]):
            sequence = tasks[i, 0]
            at, row = _place(plan, sequence, current_at, reverse)
            to, to_row = _place(plan, sequence, spikes_at, reverse)
            for chunk in range(-(-plan[sequence, 2] // CHUNK)):
                first = chunk * CHUNK
                steps = min(CHUNK, plan[sequence, 2] - first)
                keep = (plan[sequence, 3] + chunk) * pitch
                for lane in range(tasks[i, 1], tasks[i, 2], width):
                    here = sequence * pitch + lane
                    x, y = at + first * row, to + first * to_row
                    if whole and lane + width <= lanes:
                        _forward_tile(
                            current, x + lane, row, spikes, y + lane, to_row, past_cache, steps, coefs, pitch,
                            lane, state, here, span, kept, keep + lane, kept_span, resonant, reset,
                        )  # fmt: skip
                    else:
                        some = min(width, lanes - lane)
                        x, y = x + lane * current_at[2], y + lane * spikes_at[2]
                        _gather(current, x, row, current_at[2], steps, some, width, tile)
                        _forward_tile(
                            tile, 0, width, out, 0, width, False, steps, coefs, pitch, lane, state, here, span,
                            kept, keep + lane, kept_span, resonant, reset,
                        )  # fmt: skip
                        _scatter(out, steps, some, width, spikes, y, to_row, spikes_at[2])

    return _compile(forward)


@functools.cache
def backward_kernel(
    width: int, resonant: bool, reset: int, full: bool, slope: Callable[..., float], vector: bool
) -> Callable[..., Any]:
    tag = _fingerprint(slope)
    slope = register_jitable(slope)
    # A slope that only knows single numbers is applied to the chunk's notes afterwards.
    at_once = slope if vector else _unchanged

    def backward(
        plan, tasks, lanes, current, current_at, grads, grads_at, grad_current, out_at, past_cache, coefs,
        pitch, kept, numbers, grad_state, sums, reverse,
    ):  # fmt: skip
        _ = tag  # part of the cache key
        span, kept_span = plan.shape[0] * pitch, kept.size // (2 if resonant else 1)
        whole = current_at[2] == 1 and grads_at[2] == 1 and out_at[2] == 1
        size = CHUNK * width
        tile, pull, out = (np.empty(size, current.dtype), np.empty(size, current.dtype),
                           np.empty(size, current.dtype))  # fmt: skip
        notes = np.empty(4 * size + width, current.dtype)
        note = -(notes.ctypes.data // current.itemsize) % width  # where the first whole vector begins
        slopes = note + 3 * size
        for i in range(tasks.shape[0]):
            sequence = tasks[i, 0]
            at, row = _place(plan, sequence, current_at, reverse)
            from_, from_row = _place(plan, sequence, grads_at, reverse)
            to, to_row = _place(plan, sequence, out_at, reverse)
            for chunk in range(-(-plan[sequence, 2] // CHUNK) - 1, -1, -1):
                first = chunk * CHUNK
                steps = min(CHUNK, plan[sequence, 2] - first)
                keep = (plan[sequence, 3] + chunk) * pitch
                for lane in range(tasks[i, 1], tasks[i, 2], width):
                    here = sequence * pitch + lane
                    x, g, y = at + first * row, from_ + first * from_row, to + first * to_row
                    direct = whole and lane + width <= lanes
                    some = min(width, lanes - lane)
                    if direct:
                        _again_tile(
                            current, x + lane, row, steps, coefs, pitch, lane, kept, keep + lane, kept_span,
                            notes, note, slopes, width, at_once, numbers, resonant, reset,
                        )  # fmt: skip
                    else:
                        x, g, y = x + lane * current_at[2], g + lane * grads_at[2], y + lane * out_at[2]
                        _gather(current, x, row, current_at[2], steps, some, width, tile)
                        _gather(grads, g, from_row, grads_at[2], steps, some, width, pull)
                        _again_tile(
                            tile, 0, width, steps, coefs, pitch, lane, kept, keep + lane, kept_span, notes,
                            note, slopes, width, at_once, numbers, resonant, reset,
                        )  # fmt: skip
                    if not vector:
                        for k in range(slopes, slopes + steps * width):
                            notes[k] = slope(notes[k], *numbers)
                    if direct:
                        _backward_tile(
                            current, x + lane, row, grads, g + lane, from_row, grad_current, y + lane, to_row,
                            past_cache, steps, coefs, pitch, lane, notes, note, slopes, width, grad_state, here,
                            span, sums, resonant, reset, full,
                        )  # fmt: skip
                    else:
                        _backward_tile(
                            tile, 0, width, pull, 0, width, out, 0, width, False, steps, coefs, pitch, lane,
                            notes, note, slopes, width, grad_state, here, span, sums, resonant, reset, full,
                        )  # fmt: skip
                        _scatter(out, steps, some, width, grad_current, y, to_row, out_at[2])

    return _compile(backward)
