"""The kernels of the scan, in Numba: one vector of lanes through one chunk of time, and the loops around it.

Compiled code: the types are Numba's, taken from the call. The walk over tasks, chunks and tiles is in the two kernels
at the end; what happens to a tile stands once, in the functions before them, which are inlined so that LLVM sees the
flags that a kernel fixes and drops what they rule out.

`block` is the neuron inside an SD-TCM block (`resofire.ops.sdtcm`). Its current is N(x) = γ x̂ + β with
x̂ = x inv + off, four more rows behind the coefficients. Its spikes are written as bits. Its gradient is added to what
the gradient of x holds already, that of the shortcut, without what the statistics in x̂ contribute. Instead of the
gradients of Δ and V it sums ∂u x̂ and ∂u, from which those of Δ, γ, β and the statistics follow.
"""

import functools
import inspect
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload, register_jitable

from .. import surrogate as surrogates
from . import CHUNK, TILE_BYTES, simd
from .simd import add_wide, load, prefetch, store, store_mask, stream, where_ge, zeros_like

_NONE, _SOFT, _HARD = range(3)
RESETS = {"none": _NONE, "soft": _SOFT, "hard": _HARD}

inline = njit(error_model="numpy", fastmath={"contract"}, forceinline=True)


@overload(surrogates.like)
def _like(x, value):
    kind = x.dtype if isinstance(x, simd.Vector) else x
    return lambda x, value: kind(value)


@inline
def _put(array, at, value, past_cache):
    if past_cache:
        stream(array, at, value)
    else:
        store(array, at, value)


@inline
def _gather(source, at, row, lane, steps, lanes, width, tile):
    """tile[t, j] = source[at + t * row + j * lane], and 0 in the lanes that the source does not have."""
    for t in range(steps):
        for j in range(lanes):
            tile[t * width + j] = source[at + t * row + j * lane]
        for j in range(lanes, width):
            tile[t * width + j] = 0


@inline
def _scatter(tile, steps, lanes, width, target, at, row, lane):
    for t in range(steps):
        for j in range(lanes):
            target[at + t * row + j * lane] = tile[t * width + j]


@inline
def _clear_bits(bits, at, row, steps, lanes, width):
    """Clear the bits of the lanes from `lanes` to `width` in each row of a tile; `at` counts bytes."""
    for t in range(steps):
        for j in range(lanes, width):
            bits[at + t * row + j // 8] &= np.uint8(255 - (1 << (j % 8)))


@inline
def _coefficients(coefs, pitch, lane, resonant):
    """φ_re, φ_im, Δ and V of a vector of lanes; of a LIF β and V, with β twice more where the PRF has others."""
    a = load(coefs, lane)
    if resonant:
        return a, load(coefs, pitch + lane), load(coefs, 2 * pitch + lane), load(coefs, 3 * pitch + lane)
    return a, a, a, load(coefs, pitch + lane)


@inline
def _normed(x, coefs, pitch, lane, resonant):
    """x̂ and the current γ x̂ + β."""
    row = 4 * pitch if resonant else 2 * pitch
    x_hat = x * load(coefs, row + lane) + load(coefs, row + pitch + lane)
    return x_hat, x_hat * load(coefs, row + 2 * pitch + lane) + load(coefs, row + 3 * pitch + lane)


@inline
def _step(c, v, r, a, b, d, resonant):
    """The potential u of the next step, and r."""
    if resonant:
        return a * v - b * r + d * c, b * v + a * r
    return a * v + c, r


@inline
def _after_reset(peak, threshold, reset):
    if reset == _SOFT:
        return where_ge(peak, threshold, peak - threshold, peak)
    if reset == _HARD:
        return where_ge(peak, threshold, 0.0, peak)
    return peak


@inline
def _forward_tile(
    current, at, row, spikes, to, to_row, past_cache, steps, coefs, pitch, lane, state, here, span, kept, keep,
    kept_span, resonant, reset, block,
):  # fmt: skip
    """`steps` steps of one vector of lanes. state[here] holds v (and r one span on), which is kept at kept[keep]."""
    a, b, d, threshold = _coefficients(coefs, pitch, lane, resonant)
    v = load(state, here)
    r = v
    store(kept, keep, v)
    if resonant:
        r = load(state, span + here)
        store(kept, kept_span + keep, r)
    for _ in range(steps):
        c = load(current, at)
        if block:
            _, c = _normed(c, coefs, pitch, lane, resonant)
        peak, r = _step(c, v, r, a, b, d, resonant)
        prefetch(current, at + CHUNK * row)
        if block:
            store_mask(spikes, to, peak, threshold)
        else:
            _put(spikes, to, where_ge(peak, threshold, 1.0, 0.0), past_cache)
        v = _after_reset(peak, threshold, reset)
        at += row
        to += to_row
    store(state, here, v)
    if resonant:
        store(state, span + here, r)


@inline
def _again_tile(
    current, at, row, steps, coefs, pitch, lane, kept, keep, kept_span, notes, note, slopes, width, slope, numbers,
    resonant, reset, block,
):  # fmt: skip
    """Walks a chunk once more from its checkpoint. Notes some vectors a step, the state v and r before it, (for a
    reset) u and (in a block) x̂, and behind those of the chunk one a step, the slope of u - V."""
    a, b, d, threshold = _coefficients(coefs, pitch, lane, resonant)
    v = load(kept, keep)
    r = v
    if resonant:
        r = load(kept, kept_span + keep)
    for _ in range(steps):
        store(notes, note, v)
        if resonant:
            store(notes, note + width, r)
        c = load(current, at)
        if block:
            x_hat, c = _normed(c, coefs, pitch, lane, resonant)
            store(notes, note + 3 * width, x_hat)
        peak, r = _step(c, v, r, a, b, d, resonant)
        prefetch(current, at - CHUNK * row)
        store(notes, slopes, slope(peak - threshold, *numbers))
        if reset != _NONE:
            store(notes, note + 2 * width, peak)
        v = _after_reset(peak, threshold, reset)
        at += row
        note += (4 if block else 3) * width
        slopes += width


@inline
def _through_spike(grad_spike, grad_v, slope, peak, threshold, reset, full):
    """The gradient that reaches u_t through the spike: s_t itself, and with `full` the one inside the reset."""
    if full and reset == _SOFT:
        return (grad_spike - threshold * grad_v) * slope
    if full and reset == _HARD:
        return (grad_spike - peak * grad_v) * slope
    return grad_spike * slope


@inline
def _backward_tile(
    current, at, row, grads, from_, from_row, more, grad_current, to, to_row, past_cache, steps, coefs, pitch, lane,
    notes, note, slopes, width, grad_state, here, span, sums, resonant, reset, full, block,
):  # fmt: skip
    """Walks a chunk backwards. grad_state[here] holds the gradient of v (and of r one span on) and is carried on.
    In a block `more` is added to the gradient of every spike."""
    stride = (4 if block else 3) * width
    at += (steps - 1) * row
    from_ += (steps - 1) * from_row
    to += (steps - 1) * to_row
    note += (steps - 1) * stride
    slopes += (steps - 1) * width
    grad_v = load(grad_state, here)
    sum_a = zeros_like(grad_v)
    sum_b, sum_d, sum_threshold = sum_a, sum_a, sum_a
    a, b, d, threshold = _coefficients(coefs, pitch, lane, resonant)
    grad_r = grad_v
    if resonant:
        grad_r = load(grad_state, span + here)
    peak = threshold
    onto = d
    if block:
        # From u back to x: Δ of a PRF (a LIF takes its current as it is), then γ inv.
        row_inv = 4 * pitch if resonant else 2 * pitch
        onto = load(coefs, row_inv + lane) * load(coefs, row_inv + 2 * pitch + lane)
        if resonant:
            onto = onto * d
    for _ in range(steps):
        if reset != _NONE:
            peak = load(notes, note + 2 * width)
        prefetch(grads, from_ - CHUNK * from_row)
        slope = load(notes, slopes)
        grad_spike = load(grads, from_)
        if block:
            grad_spike = grad_spike + more
        through = _through_spike(grad_spike, grad_v, slope, peak, threshold, reset, full)
        if not block:
            sum_threshold = sum_threshold - through
            if reset == _SOFT:
                sum_threshold = sum_threshold - where_ge(peak, threshold, grad_v, 0.0)
        if reset == _HARD:
            grad_v = where_ge(peak, threshold, 0.0, grad_v)
        grad_u = grad_v + through
        if block:
            sum_threshold = sum_threshold + grad_u
            sum_d = sum_d + grad_u * load(notes, note + 3 * width)
            store(grad_current, to, load(grad_current, to) + onto * grad_u)
        v = load(notes, note)
        if resonant:
            r = load(notes, note + width)
            sum_a = sum_a + grad_u * v + grad_r * r
            sum_b = sum_b + grad_r * v - grad_u * r
            if not block:
                sum_d = sum_d + grad_u * load(current, at)
                _put(grad_current, to, d * grad_u, past_cache)
            grad_v = a * grad_u + b * grad_r
            grad_r = a * grad_r - b * grad_u
        else:
            sum_a = sum_a + grad_u * v
            if not block:
                _put(grad_current, to, grad_u, past_cache)
            grad_v = a * grad_u
        at -= row
        from_ -= from_row
        to -= to_row
        note -= stride
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
        if block:
            add_wide(sums, 2 * span + here, sum_d)


@register_jitable
def _unchanged(x, *numbers):
    return x


@inline
def _place(plan, sequence, strides, reverse):
    """Where a sequence's first step lies in a tensor of these strides, and how far it is to the next."""
    row = strides[1]
    at = strides[3] + plan[sequence, 0] * strides[0] + plan[sequence, 1] * row
    if reverse:
        return at + (plan[sequence, 2] - 1) * row, -row
    return at, row


def compiled(function: Callable[..., Any], keep: bool) -> Callable[..., Any]:
    """Compiles a kernel; `keep` says whether Numba may keep it on disk."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        return njit(cache=keep, **options)(function)
    except RuntimeError:  # no folder that Numba could write its cache to: compile in every process
        return njit(**options)(function)


def fingerprint(*parts: Any) -> int:
    """Numba's cache looks at the file of the kernel only; this makes a change in what a kernel takes from elsewhere,
    from this file or from `parts` (modules and functions), a miss. (A kernel with another CHUNK than the memory was
    laid out for would write where it must not.)"""
    code = (
        f"{__name__} {CHUNK} {TILE_BYTES} {inspect.getsource(simd)}{inspect.getsource(sys.modules[__name__])}".encode()
    )
    for part in parts:
        if inspect.ismodule(part):
            code += inspect.getsource(part).encode()
        else:
            code += part.__code__.co_code + repr(part.__code__.co_consts).encode()
    return zlib.crc32(code)


@functools.cache
def forward_kernel(width: int, resonant: bool, reset: int, block: bool = False) -> Callable[..., Any]:
    """Walks tasks forward: see `cpu.forward`, which calls it with tensors as flat arrays and their strides."""
    tag = fingerprint()

    def forward(
        plan, tasks, lanes, current, current_at, spikes, spikes_at, past_cache, coefs, pitch, state, kept, reverse
    ):
        _ = tag  # part of the cache key
        span, kept_span = plan.shape[0] * pitch, kept.size // (2 if resonant else 1)
        whole = current_at[2] == 1 and (block or spikes_at[2] == 1)
        source, target = np.empty(CHUNK * width, current.dtype), np.empty(CHUNK * width, spikes.dtype)
        for i in range(tasks.shape[0]):
            sequence = tasks[i, 0]
            at, row = _place(plan, sequence, current_at, reverse)
            to, to_row = _place(plan, sequence, spikes_at, reverse)
            for chunk in range(-(-plan[sequence, 2] // CHUNK)):
                first = chunk * CHUNK
                steps = min(CHUNK, plan[sequence, 2] - first)
                keep = (plan[sequence, 3] + chunk) * pitch
                for lane in range(tasks[i, 1], tasks[i, 2], width):
                    x = at + first * row + lane * current_at[2]
                    y = to + first * to_row + (lane // 8 if block else lane * spikes_at[2])
                    some = min(width, lanes - lane)
                    direct = whole and some == width
                    c, c_at, c_row, s, s_at, s_row = current, x, row, spikes, y, to_row
                    if not direct:
                        _gather(current, x, row, current_at[2], steps, some, width, source)
                        c, c_at, c_row = source, 0, width
                        if not block:  # rows of bits have room for whole vectors
                            s, s_at, s_row = target, 0, width
                    _forward_tile(
                        c, c_at, c_row, s, s_at, s_row, past_cache and direct, steps, coefs, pitch, lane, state,
                        sequence * pitch + lane, span, kept, keep + lane, kept_span, resonant, reset, block,
                    )  # fmt: skip
                    if not direct and not block:
                        _scatter(target, steps, some, width, spikes, y, to_row, spikes_at[2])

    return compiled(forward, keep=True)


@functools.cache
def backward_kernel(
    width: int, resonant: bool, reset: int, full: bool, slope: Callable[..., float], vector: bool, block: bool = False
) -> Callable[..., Any]:
    """Walks tasks backward: see `cpu.backward`. `vector` says whether `slope` takes whole vectors."""
    slope = getattr(slope, "py_func", slope)  # it may have been compiled already
    tag = fingerprint(slope)
    slope = register_jitable(slope)
    # A slope that only knows single numbers is applied to the chunk's notes afterwards.
    at_once = slope if vector else _unchanged

    def backward(
        plan, tasks, lanes, current, current_at, grads, grads_at, more, grad_current, out_at, past_cache, coefs, pitch,
        kept, numbers, grad_state, sums, reverse,
    ):  # fmt: skip
        _ = tag  # part of the cache key
        span, kept_span = plan.shape[0] * pitch, kept.size // (2 if resonant else 1)
        whole = current_at[2] == 1 and grads_at[2] == 1 and out_at[2] == 1
        size = CHUNK * width
        source, pull = np.empty(size, current.dtype), np.empty(size, current.dtype)
        target = np.empty(size, current.dtype)
        notes = np.empty(5 * size + width, current.dtype)
        note = -(notes.ctypes.data // current.itemsize) % width  # where the first whole vector begins
        slopes = note + (4 if block else 3) * size
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
                    x, y = at + first * row + lane * current_at[2], to + first * to_row + lane * out_at[2]
                    z = from_ + first * from_row + lane * grads_at[2]
                    some = min(width, lanes - lane)
                    direct = whole and some == width
                    if direct:
                        c, c_at, c_row, g, g_at, g_row = current, x, row, grads, z, from_row
                        o, o_at, o_row = grad_current, y, to_row
                    else:
                        _gather(current, x, row, current_at[2], steps, some, width, source)
                        _gather(grads, z, from_row, grads_at[2], steps, some, width, pull)
                        c, c_at, c_row, g, g_at, g_row = source, 0, width, pull, 0, width
                        o, o_at, o_row = target, 0, width
                        if block:
                            _gather(grad_current, y, to_row, out_at[2], steps, some, width, target)
                    _again_tile(
                        c, c_at, c_row, steps, coefs, pitch, lane, kept, keep + lane, kept_span, notes, note, slopes,
                        width, at_once, numbers, resonant, reset, block,
                    )  # fmt: skip
                    if not vector:
                        for k in range(slopes, slopes + steps * width):
                            notes[k] = slope(notes[k], *numbers)
                    _backward_tile(
                        c, c_at, c_row, g, g_at, g_row, more, o, o_at, o_row, past_cache and direct, steps, coefs,
                        pitch, lane, notes, note, slopes, width, grad_state, sequence * pitch + lane, span, sums,
                        resonant, reset, full, block,
                    )  # fmt: skip
                    if not direct:
                        _scatter(target, steps, some, width, grad_current, y, to_row, out_at[2])

    # What a user's slope calls or looks up may change without a trace that Numba's cache would notice.
    return compiled(backward, keep=slope.__module__ == surrogates.__name__)
