"""The fused neuron on the GPU, in Triton.

A program walks one sequence and one block of lanes, a thread per lane, with the state in registers; it reads `_AHEAD`
steps at once, since a walk that waited for each step's memory would do little else. Backwards it goes chunk by chunk
from the last, walks each group of steps again from the chunk's checkpoint, and keeps them in registers too: nothing
passes from thread to thread, and there is no scratch memory.

Without a reset the neuron is linear, and where sequences and lanes are too few to fill the device (`time_parallel`) all
chunks are walked at once, three times over: from zero, to learn what each adds; chunk to chunk, to learn what each
begins with; and from there, to spike. The gradient goes the same way back.

The equation of a step stands once (`_step`), and so does its derivative (`_step_back`). Each sequence, lane and chunk
has sums of its own, added up in a fixed order: no atomics, the same bits every time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..checks import require_bounds
from ..surrogate import surrogate_from
from . import CHUNK, chunk_rows, padded

# A block is one warp: the fewer lanes a program has, the more programs there are to hide each other's waiting.
BLOCK = 64 if torch.version.hip else 32
# Below this many programs to a multiprocessor, the memory waits for the programs rather than they for the memory.
PROGRAMS_PER_PROCESSOR = 4
# Tests set this to walk in either way; None lets `time_parallel` decide.
force_time_parallel: bool | None = None

_CHUNK = tl.constexpr(CHUNK)
_AHEAD = tl.constexpr(16)

# What differs from call to call is no reason to compile again.
_jit = triton.jit(do_not_specialize=["length", "lanes", "sequences", "rows", "pitch"])


@triton.jit
def _divide(x, y):
    """x / y, rounded as IEEE has it: for float32, Triton's own `/` is an approximation on some devices."""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:
        return x / y


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
    return _divide(alpha * e, (1.0 + e) * (1.0 + e))


@triton.jit
def _rectangle(x, width):
    return _divide(tl.where(tl.abs(x) < 0.5 * width, tl.zeros_like(x) + 1.0, 0.0), width)


_SLOPES = {"ATan": _atan, "Triangle": _triangle, "Sigmoid": _sigmoid, "Rectangle": _rectangle}


@triton.jit
def _step(c, v, r, coefs, RESONANT: tl.constexpr, RESET: tl.constexpr):
    """One step: the potential u, and the state that it leaves. Without resonance r is carried along untouched."""
    a, b, d, threshold = coefs
    if RESONANT:
        u = a * v - b * r + d * c
        r = b * v + a * r
    else:
        u = a * v + c
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
    """The same step backwards, where v and r are the state that it found: the gradients of c, v and r, and what the
    step adds to those of the coefficients."""
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
    if RESONANT:
        terms = (grad_u * v + grad_r * r, grad_r * v - grad_u * r, grad_u * c, grad_threshold)
        return d * grad_u, a * grad_u + b * grad_r, a * grad_r - b * grad_u, terms
    else:
        zero = tl.zeros_like(v)
        return grad_u, a * grad_u, grad_r, (grad_u * v, zero, zero, grad_threshold)


@triton.jit
def _read(source, step, first, steps, mask, DTYPE: tl.constexpr):
    """The _AHEAD steps from `first` on, asked for all at once, and 0 for those behind the last."""
    rows = ()
    for k in tl.static_range(_AHEAD):
        here = source + (first + k) * step
        rows = rows + (tl.load(here, mask=mask & (first + k < steps), other=0.0).to(DTYPE),)
    return rows


@triton.jit
def _walk(
    current, step, spikes, spikes_step, v, r, coefs, steps, mask, RESONANT: tl.constexpr, RESET: tl.constexpr,
    WRITE: tl.constexpr,
):  # fmt: skip
    """The state after `steps` steps of a chunk, whose spikes are written or not."""
    for first in range(0, steps, _AHEAD):
        currents = _read(current, step, first, steps, mask, v.dtype)
        for k in tl.static_range(_AHEAD):
            u, next_v, next_r = _step(currents[k], v, r, coefs, RESONANT, RESET)
            within = first + k < steps
            if WRITE:
                fired = (u >= coefs[3]).to(spikes.dtype.element_ty)
                tl.store(spikes + (first + k) * spikes_step, fired, mask=mask & within)
            v = tl.where(within, next_v, v)
            r = tl.where(within, next_r, r)
    return v, r


@triton.jit
def _walk_back(
    current, step, grads, grads_step, out, out_step, start_v, start_r, grad_v, grad_r, coefs, steps, mask,
    SLOPE: tl.constexpr, NUMBERS, RESONANT: tl.constexpr, RESET: tl.constexpr, FULL: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """A chunk backwards: the gradient of the state it began with, (start_v, start_r), from that of the state it left,
    and its sums of the coefficients' gradients. The gradient of the current is written or not."""
    sum_a = tl.zeros_like(start_v)
    sum_b, sum_d, sum_threshold = sum_a, sum_a, sum_a
    groups = tl.cdiv(steps, _AHEAD)
    for group in range(groups):
        first = (groups - 1 - group) * _AHEAD
        v, r = _walk(current, step, out, out_step, start_v, start_r, coefs, first, mask, RESONANT, RESET, False)
        currents = _read(current, step, first, steps, mask, v.dtype)
        grad_spikes = _read(grads, grads_step, first, steps, mask, v.dtype)
        us, vs, rs = (), (), ()
        for k in tl.static_range(_AHEAD):
            vs = vs + (v,)
            rs = rs + (r,)
            u, v, r = _step(currents[k], v, r, coefs, RESONANT, RESET)
            us = us + (u,)
        for k in tl.static_range(_AHEAD - 1, -1, -1):
            grad_c, before_v, before_r, terms = _step_back(
                grad_spikes[k], grad_v, grad_r, currents[k], us[k], vs[k], rs[k], coefs, SLOPE, NUMBERS, RESONANT,
                RESET, FULL,
            )  # fmt: skip
            within = first + k < steps
            if WRITE:
                tl.store(out + (first + k) * out_step, grad_c.to(out.dtype.element_ty), mask=mask & within)
            grad_v = tl.where(within, before_v, grad_v)
            grad_r = tl.where(within, before_r, grad_r)
            sum_a += tl.where(within, terms[0], 0.0)
            sum_b += tl.where(within, terms[1], 0.0)
            sum_d += tl.where(within, terms[2], 0.0)
            sum_threshold += tl.where(within, terms[3], 0.0)
    return grad_v, grad_r, (sum_a, sum_b, sum_d, sum_threshold)


@triton.jit
def _load_state(states, row, rows, width, lane, RESONANT: tl.constexpr):
    """v and r of one row of [C', rows, width]."""
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
    """a, b, d, V of each lane. Without resonance b and d have no part in anything."""
    a = tl.load(coefficients + lane, mask=lane < lanes, other=0.0)
    b = tl.load(coefficients + lanes + lane, mask=lane < lanes, other=0.0)
    if RESONANT:
        d = tl.load(coefficients + 2 * lanes + lane, mask=lane < lanes, other=0.0)
        return a, b, d, tl.load(coefficients + 3 * lanes + lane, mask=lane < lanes, other=0.0)
    else:
        return a, a, a, b


@triton.jit
def _store_sums(sums, row, rows, lanes, lane, values, RESONANT: tl.constexpr):
    """One row of [C, rows, N]."""
    at = sums + row * lanes + lane
    tl.store(at, values[0], mask=lane < lanes)
    if RESONANT:
        tl.store(at + rows * lanes, values[1], mask=lane < lanes)
        tl.store(at + 2 * rows * lanes, values[2], mask=lane < lanes)
        tl.store(at + 3 * rows * lanes, values[3], mask=lane < lanes)
    else:
        tl.store(at + rows * lanes, values[3], mask=lane < lanes)


@triton.jit
def _block(BLOCK: tl.constexpr):
    """The row (a sequence or a chunk) and the lanes of this program. 64 bits: tensors may be longer than 2**31."""
    return tl.program_id(0).to(tl.int64), (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)


@triton.jit
def _bound(cu_seqlens, i, least, length):
    """cu_seqlens[i], cut to where there is something to read: the host does not look at it, that would be a sync."""
    return tl.minimum(tl.maximum(tl.load(cu_seqlens + i).to(tl.int64), least), length)


@triton.jit
def _sequence(sequence, cu_seqlens, length):
    """A sequence's batch index, its first step, its length and the row of its first checkpoint."""
    if cu_seqlens is None:
        return sequence, sequence * 0, sequence * 0 + length, sequence * tl.cdiv(length, _CHUNK)
    else:
        start = _bound(cu_seqlens, sequence, 0, length)
        end = _bound(cu_seqlens, sequence + 1, start, length)
        return sequence * 0, start, end - start, start // _CHUNK + sequence


@triton.jit
def _chunk_at(row, cu_seqlens, length, sequences):
    """Whose checkpoint is kept in this row: a sequence, and one of its chunks (in a row left over, one without steps)."""
    if cu_seqlens is None:
        return row // tl.cdiv(length, _CHUNK), row % tl.cdiv(length, _CHUNK)
    else:
        low = row * 0
        high = low + sequences
        while high - low > 1:
            middle = (low + high) // 2
            before = _bound(cu_seqlens, middle, 0, length) // _CHUNK + middle <= row
            low = tl.where(before, middle, low)
            high = tl.where(before, high, middle)
        return low, tl.maximum(row - low - _bound(cu_seqlens, low, 0, length) // _CHUNK, 0)


@triton.jit
def _place(tensor, strides, batch, start, total, chunk, lane, REVERSE: tl.constexpr):
    """Where a chunk's first step lies, and how far it is to the next."""
    step = tl.cast(strides[1], tl.int64)
    at = tensor + batch * strides[0] + lane * strides[2]
    if REVERSE:
        return at + (start + total - 1 - chunk * _CHUNK) * step, -step
    else:
        return at + (start + chunk * _CHUNK) * step, step


@_jit
def _forward_kernel(
    current, current_at, spikes, spikes_at, coefficients, state, final, checkpoints, cu_seqlens, length, lanes,
    sequences, rows, pitch, RESONANT: tl.constexpr, RESET: tl.constexpr, REVERSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A whole sequence, chunk after chunk."""
    sequence, lane = _block(BLOCK)
    mask = lane < lanes
    batch, start, total, row = _sequence(sequence, cu_seqlens, length)
    coefs = _coefficients(coefficients, lane, lanes, RESONANT)
    v, r = _load_state(state, sequence, sequences, lanes, lane, RESONANT)
    for chunk in range(tl.cdiv(total, _CHUNK)):
        _store_state(checkpoints, row + chunk, rows, pitch, lane, lane < pitch, v, r, RESONANT)
        x, step = _place(current, current_at, batch, start, total, chunk, lane, REVERSE)
        y, y_step = _place(spikes, spikes_at, batch, start, total, chunk, lane, REVERSE)
        steps = tl.minimum(total - chunk * _CHUNK, _CHUNK)
        v, r = _walk(x, step, y, y_step, v, r, coefs, steps, mask, RESONANT, RESET, True)
    _store_state(final, sequence, sequences, lanes, lane, mask, v, r, RESONANT)


@_jit
def _backward_kernel(
    current, current_at, grads, grads_at, out, out_at, coefficients, checkpoints, grad_state, final, sums, cu_seqlens,
    length, lanes, sequences, rows, pitch, SLOPE: tl.constexpr, NUMBERS, RESONANT: tl.constexpr, RESET: tl.constexpr,
    FULL: tl.constexpr, REVERSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A whole sequence backwards, chunk after chunk. Sums are carried from chunk to chunk in float64."""
    sequence, lane = _block(BLOCK)
    mask = lane < lanes
    batch, start, total, row = _sequence(sequence, cu_seqlens, length)
    coefs = _coefficients(coefficients, lane, lanes, RESONANT)
    grad_v, grad_r = _load_state(grad_state, sequence, sequences, lanes, lane, RESONANT)
    sum_a = tl.zeros([BLOCK], tl.float64)
    sum_b, sum_d, sum_threshold = sum_a, sum_a, sum_a
    chunks = tl.cdiv(total, _CHUNK)
    for back in range(chunks):
        chunk = chunks - 1 - back
        v, r = _load_state(checkpoints, row + chunk, rows, pitch, lane, RESONANT)
        x, step = _place(current, current_at, batch, start, total, chunk, lane, REVERSE)
        g, g_step = _place(grads, grads_at, batch, start, total, chunk, lane, REVERSE)
        y, y_step = _place(out, out_at, batch, start, total, chunk, lane, REVERSE)
        steps = tl.minimum(total - chunk * _CHUNK, _CHUNK)
        grad_v, grad_r, terms = _walk_back(
            x, step, g, g_step, y, y_step, v, r, grad_v, grad_r, coefs, steps, mask, SLOPE, NUMBERS, RESONANT, RESET,
            FULL, True,
        )  # fmt: skip
        sum_a += terms[0].to(tl.float64)
        sum_b += terms[1].to(tl.float64)
        sum_d += terms[2].to(tl.float64)
        sum_threshold += terms[3].to(tl.float64)
    _store_state(final, sequence, sequences, lanes, lane, mask, grad_v, grad_r, RESONANT)
    _store_sums(sums, sequence, sequences, lanes, lane, (sum_a, sum_b, sum_d, sum_threshold), RESONANT)


@_jit
def _chunks_forward_kernel(
    current, current_at, spikes, spikes_at, coefficients, states, cu_seqlens, length, lanes, sequences, rows, pitch,
    RESONANT: tl.constexpr, REVERSE: tl.constexpr, FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One chunk: from zero to the state it leaves, put into `states`; or from the state given there to its spikes."""
    row, lane = _block(BLOCK)
    sequence, chunk = _chunk_at(row, cu_seqlens, length, sequences)
    batch, start, total, _ = _sequence(sequence, cu_seqlens, length)
    coefs = _coefficients(coefficients, lane, lanes, RESONANT)
    x, step = _place(current, current_at, batch, start, total, chunk, lane, REVERSE)
    y, y_step = _place(spikes, spikes_at, batch, start, total, chunk, lane, REVERSE)
    steps = tl.minimum(total - chunk * _CHUNK, _CHUNK)
    if FROM_ZERO:
        v = tl.zeros([BLOCK], states.dtype.element_ty)
        v, r = _walk(x, step, y, y_step, v, v, coefs, steps, lane < lanes, RESONANT, "none", False)
        _store_state(states, row, rows, pitch, lane, lane < pitch, v, r, RESONANT)
    else:
        v, r = _load_state(states, row, rows, pitch, lane, RESONANT)
        _walk(x, step, y, y_step, v, r, coefs, steps, lane < lanes, RESONANT, "none", True)


@_jit
def _chunks_backward_kernel(
    current, current_at, grads, grads_at, out, out_at, coefficients, checkpoints, grad_states, sums, cu_seqlens, length,
    lanes, sequences, rows, pitch, SLOPE: tl.constexpr, NUMBERS, RESONANT: tl.constexpr, REVERSE: tl.constexpr,
    FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One chunk backwards: from zero to the gradient of the state it began with, put into `grad_states`; or from the
    gradient of the state it left, given there, to that of the current and its share of the coefficients'."""
    row, lane = _block(BLOCK)
    sequence, chunk = _chunk_at(row, cu_seqlens, length, sequences)
    batch, start, total, _ = _sequence(sequence, cu_seqlens, length)
    coefs = _coefficients(coefficients, lane, lanes, RESONANT)
    x, step = _place(current, current_at, batch, start, total, chunk, lane, REVERSE)
    g, g_step = _place(grads, grads_at, batch, start, total, chunk, lane, REVERSE)
    y, y_step = _place(out, out_at, batch, start, total, chunk, lane, REVERSE)
    steps = tl.minimum(total - chunk * _CHUNK, _CHUNK)
    v, r = _load_state(checkpoints, row, rows, pitch, lane, RESONANT)
    grad_v = tl.zeros_like(v)
    grad_r = tl.zeros_like(v)
    if not FROM_ZERO:
        grad_v, grad_r = _load_state(grad_states, row, rows, pitch, lane, RESONANT)
    grad_v, grad_r, terms = _walk_back(
        x, step, g, g_step, y, y_step, v, r, grad_v, grad_r, coefs, steps, lane < lanes, SLOPE, NUMBERS, RESONANT,
        "none", False, not FROM_ZERO,
    )  # fmt: skip
    if FROM_ZERO:
        _store_state(grad_states, row, rows, pitch, lane, lane < pitch, grad_v, grad_r, RESONANT)
    else:
        _store_sums(sums, row, rows, lanes, lane, terms, RESONANT)


@triton.jit
def _power(coefs, steps, RESONANT: tl.constexpr):
    """What becomes of (1, 0) in so many steps without current: φ to that power."""
    zero = tl.zeros_like(coefs[0])
    v = zero + 1.0
    r = zero
    for _ in range(steps):
        _, v, r = _step(zero, v, r, coefs, RESONANT, "none")
    return v, r


@_jit
def _carry_kernel(
    ends, starts, coefficients, state, final, cu_seqlens, length, lanes, sequences, rows, pitch,
    RESONANT: tl.constexpr, BACKWARD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From chunk to chunk: `ends` has what each leaves if it begins with zero, `starts` gets what it begins with.

    Backwards it is gradients that are passed on, and they turn the other way. In float64, since an error in a power of
    φ would be made again at every chunk.
    """
    sequence, lane = _block(BLOCK)
    _, _, total, row = _sequence(sequence, cu_seqlens, length)
    chunks = tl.cdiv(total, _CHUNK)
    a, b, d, threshold = _coefficients(coefficients, lane, lanes, RESONANT)
    if BACKWARD:
        b = -b
    coefs = (a.to(tl.float64), b.to(tl.float64), d.to(tl.float64), threshold.to(tl.float64))
    whole_re, whole_im = _power(coefs, _CHUNK, RESONANT)
    last_re, last_im = _power(coefs, total - (chunks - 1) * _CHUNK, RESONANT)
    v, r = _load_state(state, sequence, sequences, lanes, lane, RESONANT)
    v = v.to(tl.float64)
    r = r.to(tl.float64)
    direction = -1 if BACKWARD else 1
    row += (chunks - 1) if BACKWARD else 0
    for first in range(0, chunks, _AHEAD):
        end_vs = _read(ends + row * pitch + lane, direction * pitch, first, chunks, lane < pitch, tl.float64)
        end_rs = end_vs
        if RESONANT:
            end_rs = _read(ends + (rows + row) * pitch + lane, direction * pitch, first, chunks, lane < pitch, tl.float64)
        for k in tl.static_range(_AHEAD):
            within = first + k < chunks
            _store_state(starts, row + direction * (first + k), rows, pitch, lane, within, v, r, RESONANT)
            last = first + k == (0 if BACKWARD else chunks - 1)
            turn = (tl.where(last, last_re, whole_re), tl.where(last, last_im, whole_im), 1.0, threshold)
            _, next_v, next_r = _step(end_vs[k], v, r, turn, RESONANT, "none")
            v = tl.where(within, next_v, v)
            if RESONANT:
                r = tl.where(within, next_r + end_rs[k], r)
    _store_state(final, sequence, sequences, lanes, lane, lane < lanes, v, r, RESONANT)


def time_parallel(sequences: int, blocks: int, rows: int, processors: int) -> bool:
    """Whether to walk all chunks at once: there are too few sequences and lanes for the device, and they are long
    enough to pay for three walks. It goes by shapes alone."""
    return sequences * blocks < PROGRAMS_PER_PROCESSOR * processors and rows >= 8 * sequences


class _Plan:
    """What the kernels of a call have in common: grids, sizes, and whether to walk all chunks at once."""

    def __init__(self, current: Tensor, cu_seqlens: Tensor | None, reset: str) -> None:
        batch, length, lanes = current.shape
        if cu_seqlens is not None:
            if cu_seqlens.device.type == "cpu":
                require_bounds("cu_seqlens", cu_seqlens.tolist(), length)
            cu_seqlens, batch = cu_seqlens.contiguous(), cu_seqlens.shape[0] - 1
        self.sequences, self.lanes = batch, lanes
        self.rows, self.pitch = chunk_rows(current, cu_seqlens), padded(lanes)
        self.empty = current.numel() == 0 or batch == 0
        self.sizes = (cu_seqlens, length, lanes, batch, self.rows, self.pitch)
        blocks = triton.cdiv(lanes, BLOCK)
        self.by_sequence, self.by_row = (batch, blocks), (self.rows, blocks)
        processors = 0
        if current.is_cuda:
            processors = torch.cuda.get_device_properties(current.device).multi_processor_count
        wanted = time_parallel(batch, blocks, self.rows, processors)
        self.parallel = reset == "none" and (wanted if force_time_parallel is None else force_time_parallel)


def forward(
    current: Tensor, coefficients: Tensor, state: Tensor, cu_seqlens: Tensor | None, reset: str, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Spikes, final state and checkpoints [C', rows, padded N] of a call; see the package for the shapes."""
    plan = _Plan(current, cu_seqlens, reset)
    spikes = torch.empty_like(current)
    # Packed sequences leave rows over. Nobody reads them, but the same call should give the same bits.
    new = state.new_empty if cu_seqlens is None else state.new_zeros
    checkpoints = new((state.shape[0], plan.rows, plan.pitch))
    if plan.empty:
        return spikes, state.clone(), checkpoints
    final = torch.empty_like(state, memory_format=torch.contiguous_format)
    coefficients, state = coefficients.contiguous(), state.contiguous()
    options: dict[str, Any] = {"RESONANT": coefficients.shape[0] == 4, "BLOCK": BLOCK, "num_warps": 1}
    tensors = (current, current.stride(), spikes, spikes.stride(), coefficients)
    with torch.cuda.device_of(current):
        if plan.parallel:
            ends = torch.empty_like(checkpoints)
            walk = _chunks_forward_kernel[plan.by_row]
            walk(*tensors, ends, *plan.sizes, REVERSE=reverse, FROM_ZERO=True, **options)
            _carry_kernel[plan.by_sequence](
                ends, checkpoints, coefficients, state, final, *plan.sizes, BACKWARD=False, **options
            )
            walk(*tensors, checkpoints, *plan.sizes, REVERSE=reverse, FROM_ZERO=False, **options)
        else:
            _forward_kernel[plan.by_sequence](
                *tensors, state, final, checkpoints, *plan.sizes, RESET=reset, REVERSE=reverse, **options
            )
    return spikes, final, checkpoints


def backward(
    grad_spikes: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    coefficients: Tensor,
    checkpoints: Tensor,
    cu_seqlens: Tensor | None,
    reset: str,
    full: bool,
    surrogate: str,
    numbers: list[float],
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of current, coefficients and initial state."""
    plan = _Plan(current, cu_seqlens, reset)
    grad_current = torch.empty_like(current)
    if grad_state is None:
        grad_state = checkpoints.new_zeros((checkpoints.shape[0], plan.sequences, plan.lanes))
    if plan.empty:
        return grad_current, torch.zeros_like(coefficients), grad_state.clone()
    if grad_spikes is None:
        # A gradient that is missing is a single zero, read again and again.
        grad_spikes = current.new_zeros(1).expand(current.shape)
    final = torch.empty_like(grad_state, memory_format=torch.contiguous_format)
    coefficients, grad_state = coefficients.contiguous(), grad_state.contiguous()
    sums = coefficients.new_empty(
        (coefficients.shape[0], plan.rows if plan.parallel else plan.sequences, plan.lanes), dtype=torch.float64
    )
    options: dict[str, Any] = {"RESONANT": coefficients.shape[0] == 4, "BLOCK": BLOCK, "num_warps": 1}
    # The numbers are compiled in: as arguments Triton would round them to float32.
    slope = {
        "SLOPE": surrogate_from(surrogate, numbers).triton or _SLOPES[surrogate],
        "NUMBERS": tuple(tl.constexpr(number) for number in numbers),
    }
    tensors = (
        current, current.stride(), grad_spikes, grad_spikes.stride(), grad_current, grad_current.stride(), coefficients,
        checkpoints.contiguous(),
    )  # fmt: skip
    with torch.cuda.device_of(current):
        if plan.parallel:
            ends, starts = torch.empty_like(checkpoints), torch.empty_like(checkpoints)
            walk = _chunks_backward_kernel[plan.by_row]
            walk(*tensors, ends, sums, *plan.sizes, REVERSE=reverse, FROM_ZERO=True, **slope, **options)
            _carry_kernel[plan.by_sequence](
                ends, starts, coefficients, grad_state, final, *plan.sizes, BACKWARD=True, **options
            )
            walk(*tensors, starts, sums, *plan.sizes, REVERSE=reverse, FROM_ZERO=False, **slope, **options)
        else:
            _backward_kernel[plan.by_sequence](
                *tensors, grad_state, final, sums, *plan.sizes, RESET=reset, FULL=full and reset != "none",
                REVERSE=reverse, **slope, **options,
            )  # fmt: skip
    return grad_current, sums.sum(1).to(coefficients.dtype), final
