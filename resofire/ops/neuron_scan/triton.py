"""The scan of both neurons on the GPU, in Triton.

A program runs one sequence and one block of lanes, a thread per lane, with the state in registers; it reads some steps
ahead to hide the memory latency. The backward pass runs chunk by chunk from the last, recomputes each group of steps
from the chunk's checkpoint, and keeps them in registers too: no communication between threads, no scratch memory.

Without a reset the neuron is linear. If sequences and lanes are too few to fill the device (`time_parallel`), chunks
then run in parallel, in three passes: from a zero state, for the contribution of each chunk; from chunk to chunk, for
the initial state of each; and from there, for the spikes. The gradient does the same backwards.

`_step` alone has the equation of a step, `_step_back` its derivative. Each sequence, lane and chunk has its
own sums, added in a fixed order: no atomics, the same bits every time.
"""

import torch
import triton
import triton.language as tl

from . import CHUNK

# A block is one warp: the fewer lanes a program has, the more programs there are to hide each other's waiting.
BLOCK = 64 if torch.version.hip else 32

_CHUNK = tl.constexpr(CHUNK)
# How many steps are read at once. Backwards each takes more registers, and more of the compiler's time.
_AHEAD = tl.constexpr(16)
_AHEAD_BACK = tl.constexpr(8)


@triton.jit
def _divide(x, y):
    """x / y, rounded as IEEE has it. On some devices Triton's `/` of float32 is an approximation."""
    return tl.div_rn(x, y) if x.dtype == tl.float32 else x / y


@triton.jit
def _atan(x, alpha):
    y = x * (1.5707963267948966 * alpha)
    return _divide(tl.zeros_like(x) + 0.5 * alpha, 1.0 + y * y)


@triton.jit
def _triangle(x, width):
    y = 1.0 - _divide(tl.abs(x), width)
    # Not a maximum, which would swallow a NaN.
    return _divide(tl.where(y < 0.0, 0.0, y), width)


@triton.jit
def _sigmoid(x, alpha):
    e = tl.exp(-tl.abs(x * alpha))
    return _divide(e * alpha, (1.0 + e) * (1.0 + e))


@triton.jit
def _rectangle(x, width):
    return _divide(tl.where(tl.abs(x) < 0.5 * width, tl.zeros_like(x) + 1.0, 0.0), width)


SLOPES = {"ATan": _atan, "Triangle": _triangle, "Sigmoid": _sigmoid, "Rectangle": _rectangle}
# A surrogate's numbers are compiled in: as arguments they would be rounded to float32. The interpreter takes them as
# they are (under it, `jit` gives something else than a JITFunction).
number = tl.constexpr if isinstance(_divide, triton.JITFunction) else float


@triton.jit
def _step(c, v, r, coefs, RESONANT: tl.constexpr, RESET: tl.constexpr):
    """One step: the potential u, and the state that it leaves. Without resonance r is carried along untouched.

    The roundings are spelled out, or compilers would choose them: walked again, a step must come to the same spike."""
    a, b, d, threshold = coefs
    if RESONANT:
        u = tl.fma(a, v, tl.fma(-b, r, d * c))
        r = tl.fma(b, v, a * r)
    else:
        u = tl.fma(a, v, c)
    v = u
    if RESET == "soft":
        v = tl.where(u >= threshold, u - threshold, u)
    elif RESET == "hard":
        v = tl.where(u >= threshold, 0.0, u)
    return u, v, r


@triton.jit
def _step_back(
    grad_spike, grad_v, grad_r, c, u, v, r, coefs, SLOPE: tl.constexpr, NUMBERS, RESONANT: tl.constexpr,
    RESET: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """The same step backwards, from the state v, r before it: the gradients of c, v and r, and the step's contribution
    to those of the coefficients."""
    a, b, d, threshold = coefs
    slope = SLOPE(u - threshold, *NUMBERS).to(u.dtype)
    through = grad_spike * slope
    if FULL and RESET == "soft":
        through = (grad_spike - threshold * grad_v) * slope
    elif FULL and RESET == "hard":
        through = (grad_spike - u * grad_v) * slope
    grad_threshold = -through
    if RESET == "soft":
        grad_threshold -= tl.where(u >= threshold, grad_v, 0.0)
    elif RESET == "hard":
        grad_v = tl.where(u >= threshold, 0.0, grad_v)
    grad_u = grad_v + through
    grad_c, grad_a, grad_b, grad_d = grad_u, grad_u * v, tl.zeros_like(v), tl.zeros_like(v)
    grad_v = a * grad_u
    if RESONANT:
        grad_c, grad_a, grad_b, grad_d = d * grad_u, grad_a + grad_r * r, grad_r * v - grad_u * r, grad_u * c
        grad_v += b * grad_r
        grad_r = a * grad_r - b * grad_u
    return grad_c, grad_v, grad_r, (grad_a, grad_b, grad_d, grad_threshold)


@triton.jit
def _read(source, step, first, steps, mask, DTYPE: tl.constexpr, AHEAD: tl.constexpr):
    """Load AHEAD steps from `first` on, all in flight at once; 0 after the last step."""
    rows = ()
    here = source + first * step
    for k in tl.static_range(AHEAD):
        rows += (tl.load(here, mask=mask & (first + k < steps), other=0.0).to(DTYPE),)
        here += step
    return rows


@triton.jit
def _walk(x, y, v, r, coefs, steps, mask, RESONANT: tl.constexpr, RESET: tl.constexpr, AHEAD: tl.constexpr):
    """The state after so many steps of a chunk. x is where its current lies, y where its spikes go, if anywhere."""
    for first in range(0, steps, AHEAD):
        currents = _read(x[0], x[1], first, steps, mask, v.dtype, AHEAD)
        for k in tl.static_range(AHEAD):
            u, next_v, next_r = _step(currents[k], v, r, coefs, RESONANT, RESET)
            within = first + k < steps
            if y is not None:
                spikes = tl.where(u >= coefs[3], 1.0, 0.0).to(y[0].dtype.element_ty)
                tl.store(y[0] + (first + k) * y[1], spikes, mask=mask & within)
            v = tl.where(within, next_v, v)
            r = tl.where(within, next_r, r)
    return v, r


@triton.jit
def _add(sums, terms, within):
    return (
        sums[0] + tl.where(within, terms[0], 0.0), sums[1] + tl.where(within, terms[1], 0.0),
        sums[2] + tl.where(within, terms[2], 0.0), sums[3] + tl.where(within, terms[3], 0.0),
    )  # fmt: skip


@triton.jit
def _walk_back(
    x, g, y, start_v, start_r, grad_v, grad_r, coefs, steps, mask, SLOPE: tl.constexpr, NUMBERS, RESONANT: tl.constexpr,
    RESET: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """A chunk backwards: the gradient of the state it began with, (start_v, start_r), from that of the state it left,
    and its sums of the coefficients' gradients. g is where the gradient of its spikes lies, y where that of its current
    goes, if anywhere."""
    zero = tl.zeros_like(start_v)
    sums = (zero, zero, zero, zero)
    groups = tl.cdiv(steps, _AHEAD_BACK)
    for group in range(groups):
        first = (groups - 1 - group) * _AHEAD_BACK
        currents = _read(x[0], x[1], first, steps, mask, zero.dtype, _AHEAD_BACK)
        grad_spikes = _read(g[0], g[1], first, steps, mask, zero.dtype, _AHEAD_BACK)
        v, r = _walk(x, None, start_v, start_r, coefs, first, mask, RESONANT, RESET, _AHEAD_BACK)
        us, vs, rs = (), (), ()
        for k in tl.static_range(_AHEAD_BACK):
            vs += (v,)
            rs += (r,)
            u, v, r = _step(currents[k], v, r, coefs, RESONANT, RESET)
            us += (u,)
        for k in tl.static_range(_AHEAD_BACK - 1, -1, -1):
            grad_c, next_v, next_r, terms = _step_back(
                grad_spikes[k], grad_v, grad_r, currents[k], us[k], vs[k], rs[k], coefs, SLOPE, NUMBERS, RESONANT,
                RESET, FULL,
            )  # fmt: skip
            within = first + k < steps
            if y is not None:
                tl.store(y[0] + (first + k) * y[1], grad_c.to(y[0].dtype.element_ty), mask=mask & within)
            grad_v = tl.where(within, next_v, grad_v)
            grad_r = tl.where(within, next_r, grad_r)
            sums = _add(sums, terms, within)
    return grad_v, grad_r, sums


@triton.jit
def _load_state(states, row, rows, width, lane, RESONANT: tl.constexpr):
    """v and r from a row of [C', rows, width]."""
    v = tl.load(states + row * width + lane, mask=lane < width, other=0.0)
    r = tl.zeros_like(v)
    if RESONANT:
        r = tl.load(states + (rows + row) * width + lane, mask=lane < width, other=0.0)
    return v, r


@triton.jit
def _store_state(states, row, rows, width, lane, mask, v, r, RESONANT: tl.constexpr):
    tl.store(states + row * width + lane, v.to(states.dtype.element_ty), mask=mask & (lane < width))
    if RESONANT:
        tl.store(states + (rows + row) * width + lane, r.to(states.dtype.element_ty), mask=mask & (lane < width))


@triton.jit
def _coefficients(coefficients, lane, lanes, RESONANT: tl.constexpr):
    """a, b, d and V of each lane. Without resonance b and d have no part in anything."""
    a = tl.load(coefficients + lane, mask=lane < lanes, other=0.0)
    b, d = a, a
    threshold = tl.load(coefficients + (3 if RESONANT else 1) * lanes + lane, mask=lane < lanes, other=0.0)
    if RESONANT:
        b = tl.load(coefficients + lanes + lane, mask=lane < lanes, other=0.0)
        d = tl.load(coefficients + 2 * lanes + lane, mask=lane < lanes, other=0.0)
    return a, b, d, threshold


@triton.jit
def _bound(cu_seqlens, i, least, length):
    """cu_seqlens[i], cut to where there is something to read: the host does not look at it, that would be a sync."""
    return tl.minimum(tl.maximum(tl.load(cu_seqlens + i).to(tl.int64), least), length)


@triton.jit
def _sequence(sequence, cu_seqlens, length):
    """A sequence's batch index, its first step, its length and the row of its first checkpoint."""
    batch, start, total = sequence, sequence * 0, sequence * 0 + length
    row = sequence * tl.cdiv(length, _CHUNK)
    if cu_seqlens is not None:
        batch = sequence * 0
        start = _bound(cu_seqlens, sequence, 0, length)
        total = _bound(cu_seqlens, sequence + 1, start, length) - start
        row = start // _CHUNK + sequence
    return batch, start, total, row


@triton.jit
def _sequence_at(row, cu_seqlens, length, sequences):
    """The sequence that a row of the checkpoints belongs to: the last that begins no later."""
    low = row * 0
    if cu_seqlens is None:
        low = row // tl.cdiv(length, _CHUNK)
    else:
        high = low + sequences
        while high - low > 1:
            middle = (low + high) // 2
            before = _bound(cu_seqlens, middle, 0, length) // _CHUNK + middle <= row
            low = tl.where(before, middle, low)
            high = tl.where(before, high, middle)
    return low


@triton.jit
def _program(cu_seqlens, length, sequences, BY_CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """What a program walks: its index, its lanes, its sequence (as `_sequence`), and its first chunk and the end of its
    chunks. A row that no sequence fills has no chunk. In 64 bits, as tensors may have more than 2**31 elements."""
    index = tl.program_id(0).to(tl.int64)
    lane = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    sequence = index
    if BY_CHUNK:
        sequence = _sequence_at(index, cu_seqlens, length, sequences)
    place = _sequence(sequence, cu_seqlens, length)
    first, end = index * 0, tl.cdiv(place[2], _CHUNK)
    if BY_CHUNK:
        first = tl.maximum(index - place[3], 0)
        end = tl.minimum(first + 1, end)
    return index, lane, place, first, end


@triton.jit
def _at(tensor, strides, place, chunk, lane, REVERSE: tl.constexpr):
    """Where a chunk's first step lies in a tensor, and how far it is to the next."""
    step = tl.cast(strides[1], tl.int64)
    first = place[1] + chunk * _CHUNK
    if REVERSE:
        first = place[1] + place[2] - 1 - chunk * _CHUNK
    here = tensor + place[0] * strides[0] + first * step + lane * strides[2]
    if REVERSE:
        step = -step
    return here, step


# What differs from call to call is no reason to compile again.
_kernel = triton.jit(do_not_specialize=["length", "lanes", "sequences", "rows", "pitch"])


@_kernel
def forward_kernel(
    current, current_at, spikes, spikes_at, coefficients, begin, final, checkpoints, cu_seqlens, length, lanes,
    sequences, rows, pitch, RESONANT: tl.constexpr, RESET: tl.constexpr, REVERSE: tl.constexpr, BY_CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A sequence, or one chunk: from the state in `begin`, or zero, to that in `final`. What is None is left out."""
    index, lane, place, first, end = _program(cu_seqlens, length, sequences, BY_CHUNK, BLOCK)
    count, width = (rows, pitch) if BY_CHUNK else (sequences, lanes)
    coefs = _coefficients(coefficients, lane, lanes, RESONANT)
    v, r = tl.zeros_like(coefs[0]), tl.zeros_like(coefs[0])
    if begin is not None:
        v, r = _load_state(begin, index, count, width, lane, RESONANT)
    for chunk in range(first, end):
        if checkpoints is not None:
            _store_state(checkpoints, place[3] + chunk, rows, pitch, lane, lane < pitch, v, r, RESONANT)
        x = _at(current, current_at, place, chunk, lane, REVERSE)
        y = None
        if spikes is not None:
            y = _at(spikes, spikes_at, place, chunk, lane, REVERSE)
        steps = tl.minimum(place[2] - chunk * _CHUNK, _CHUNK)
        v, r = _walk(x, y, v, r, coefs, steps, lane < lanes, RESONANT, RESET, _AHEAD)
    if final is not None:
        _store_state(final, index, count, width, lane, lane < width, v, r, RESONANT)


@_kernel
def backward_kernel(
    current, current_at, grads, grads_at, out, out_at, coefficients, checkpoints, begin, final, sums, cu_seqlens,
    length, lanes, sequences, rows, pitch, SLOPE: tl.constexpr, NUMBERS, RESONANT: tl.constexpr, RESET: tl.constexpr,
    FULL: tl.constexpr, REVERSE: tl.constexpr, BY_CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same backwards: `begin` holds the gradient of the final state, `final` gets that of the initial state."""
    index, lane, place, first, end = _program(cu_seqlens, length, sequences, BY_CHUNK, BLOCK)
    count, width = (rows, pitch) if BY_CHUNK else (sequences, lanes)
    coefs = _coefficients(coefficients, lane, lanes, RESONANT)
    grad_v, grad_r = tl.zeros_like(coefs[0]), tl.zeros_like(coefs[0])
    if begin is not None:
        grad_v, grad_r = _load_state(begin, index, count, width, lane, RESONANT)
    zero = tl.zeros([BLOCK], tl.float64)
    totals = (zero, zero, zero, zero)
    for back in range(first, end):
        chunk = first + end - 1 - back
        v, r = _load_state(checkpoints, place[3] + chunk, rows, pitch, lane, RESONANT)
        x = _at(current, current_at, place, chunk, lane, REVERSE)
        g = _at(grads, grads_at, place, chunk, lane, REVERSE)
        y = None
        if out is not None:
            y = _at(out, out_at, place, chunk, lane, REVERSE)
        steps = tl.minimum(place[2] - chunk * _CHUNK, _CHUNK)
        grad_v, grad_r, terms = _walk_back(
            x, g, y, v, r, grad_v, grad_r, coefs, steps, lane < lanes, SLOPE, NUMBERS, RESONANT, RESET, FULL
        )
        totals = _add(totals, terms, True)
    if final is not None:
        _store_state(final, index, count, width, lane, lane < width, grad_v, grad_r, RESONANT)
    if sums is not None:
        tl.store(sums + index * lanes + lane, totals[0], mask=lane < lanes)
        if RESONANT:
            tl.store(sums + (count + index) * lanes + lane, totals[1], mask=lane < lanes)
            tl.store(sums + (2 * count + index) * lanes + lane, totals[2], mask=lane < lanes)
        tl.store(sums + ((3 if RESONANT else 1) * count + index) * lanes + lane, totals[3], mask=lane < lanes)


@triton.jit
def _power(coefs, steps, RESONANT: tl.constexpr):
    """What becomes of (1, 0) in so many steps without current: φ to that power."""
    zero = tl.zeros_like(coefs[0])
    v, r = zero + 1.0, zero
    for _ in range(steps):
        _u, v, r = _step(zero, v, r, coefs, RESONANT, "none")
    return v, r


@_kernel
def carry_kernel(
    ends, begins, coefficients, begin, final, cu_seqlens, length, lanes, sequences, rows, pitch,
    RESONANT: tl.constexpr, BACKWARD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From chunk to chunk: `ends` has the state that each leaves if it begins with zero, `begins` gets that with which
    it does begin. Backwards it is gradients that are passed on, and they turn the other way. In float64, since an error
    in a power of φ would be made again at every chunk."""
    index, lane, place, first, chunks = _program(cu_seqlens, length, sequences, False, BLOCK)
    a, b, d, threshold = _coefficients(coefficients, lane, lanes, RESONANT)
    v, r = _load_state(begin, index, sequences, lanes, lane, RESONANT)
    v, r, row, step, short = v.to(tl.float64), r.to(tl.float64), place[3], 1, chunks - 1
    if BACKWARD:
        b, row, step, short = -b, row + chunks - 1, -1, first
    coefs = (a.to(tl.float64), b.to(tl.float64), d.to(tl.float64), threshold)
    whole_re, whole_im = _power(coefs, _CHUNK, RESONANT)
    short_re, short_im = _power(coefs, place[2] - (chunks - 1) * _CHUNK, RESONANT)
    mask = lane < pitch
    for i in range(0, chunks, _AHEAD_BACK):
        end_v = _read(ends + row * pitch + lane, step * pitch, i, chunks, mask, tl.float64, _AHEAD_BACK)
        end_r = end_v
        if RESONANT:
            end_r = _read(ends + (rows + row) * pitch + lane, step * pitch, i, chunks, mask, tl.float64, _AHEAD_BACK)
        for k in tl.static_range(_AHEAD_BACK):
            within = i + k < chunks
            _store_state(begins, row + step * (i + k), rows, pitch, lane, within, v, r, RESONANT)
            turn_re = tl.where(i + k == short, short_re, whole_re)
            turn_im = tl.where(i + k == short, short_im, whole_im)
            _u, next_v, next_r = _step(end_v[k], v, r, (turn_re, turn_im, 1.0, threshold), RESONANT, "none")
            v = tl.where(within, next_v, v)
            r = tl.where(within, next_r + end_r[k], r)
    _store_state(final, index, sequences, lanes, lane, lane < lanes, v, r, RESONANT)
