"""The kernels of the memories, in Numba. Tensors are contiguous, [rows, h] or [rows, d]."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..neuron_scan.kernels import compiled, fingerprint, inline
from ..neuron_scan.simd import load, store, zeros_like

# Rows of a product that are added side by side.
UNROLLED = 4


@inline
def _product(rows, values, out, width):
    """out = Σ_k values[k] rows[k]."""
    count, pitch = rows.shape
    flat = rows.reshape(-1)
    for at in range(0, pitch, width):
        s0 = zeros_like(load(flat, at))
        s1, s2, s3 = s0, s0, s0
        for k in range(0, count, UNROLLED):
            here = k * pitch + at
            s0 = s0 + load(flat, here) * values[k]
            s1 = s1 + load(flat, here + pitch) * values[k + 1]
            s2 = s2 + load(flat, here + 2 * pitch) * values[k + 2]
            s3 = s3 + load(flat, here + 3 * pitch) * values[k + 3]
        store(out, at, (s0 + s1) + (s2 + s3))


@functools.cache
def forward_kernel(width: int) -> Callable[..., Any]:
    """Writes m, a and c; `feedback` is Fᵀ and `update` Gᵀ, both padded."""
    tag = fingerprint()

    def forward(plan, tasks, length, hidden, size, x, kappa, feedback, update, bias, gain, m, a, c):
        _ = tag  # part of the cache key
        # Padding stays 0.
        kept, active = np.zeros(feedback.shape[0], x.dtype), np.zeros(update.shape[0], x.dtype)
        fed_back, updated = np.empty(feedback.shape[1], x.dtype), np.empty(update.shape[1], x.dtype)
        for i in range(tasks.shape[0]):
            batch, first, steps, _ = plan[tasks[i, 0]]
            kept[:] = 0
            for t in range(steps):
                row = batch * length + first + t
                x_now, a_now = x[row * hidden : (row + 1) * hidden], a[row * hidden : (row + 1) * hidden]
                m_now, c_now = m[row * size : (row + 1) * size], c[row * size : (row + 1) * size]
                _product(feedback, kept, fed_back, width)
                for j in range(hidden):
                    value = x_now[j] + fed_back[j]
                    # Not max: NaN stays NaN.
                    active[j] = x.dtype.type(0) if value < 0 else value
                    a_now[j] = active[j]
                _product(update, active, updated, width)
                for j in range(size):
                    c_now[j] = math.tanh(updated[j] + bias[j])
                for j in range(size):
                    m_now[j] = kept[j] + gain[j] * c_now[j]
                    kept[j] = kappa[j] * m_now[j]

    return compiled(forward, keep=True)


@functools.cache
def backward_kernel(width: int) -> Callable[..., Any]:
    """Writes the gradients of x and of G a + g, k, and adds those of κ and λ to sums [B, 2, d] in float64."""
    tag = fingerprint()

    def backward(
        plan, tasks, length, hidden, size, grad, m, a, c, kappa, feedback, update, gain, grad_x, pulled, kept, sums
    ):
        _ = tag  # part of the cache key
        total, pull = np.zeros(size, m.dtype), np.zeros(update.shape[0], m.dtype)
        inner, outer = np.zeros(feedback.shape[0], m.dtype), np.empty(feedback.shape[1], m.dtype)
        through = np.empty(update.shape[1], m.dtype)
        zero = m.dtype.type(0)
        for i in range(tasks.shape[0]):
            sequence = tasks[i, 0]
            batch, first, steps, _ = plan[sequence]
            own = sums[sequence]
            carried = np.zeros(size, m.dtype)
            for t in range(steps - 1, -1, -1):
                row = batch * length + first + t
                a_now, out = a[row * hidden : (row + 1) * hidden], grad_x[row * hidden : (row + 1) * hidden]
                c_now, g_now = c[row * size : (row + 1) * size], grad[row * size : (row + 1) * size]
                p_now, k_now = pulled[row * size : (row + 1) * size], kept[row * size : (row + 1) * size]
                for j in range(size):
                    total[j] = g_now[j] + carried[j]
                    own[1, j] += total[j] * c_now[j]
                    pull[j] = total[j] * gain[j] * (1 - c_now[j] * c_now[j])
                    p_now[j] = pull[j]
                _product(update, pull, through, width)
                for j in range(hidden):
                    inner[j] = through[j] if a_now[j] > 0 else zero
                    out[j] = inner[j]
                _product(feedback, inner, outer, width)
                if t > 0:
                    before = m[(row - 1) * size : row * size]
                    for j in range(size):
                        value = total[j] + outer[j]
                        own[0, j] += value * before[j]
                        carried[j] = kappa[j] * value
                        k_now[j] = kappa[j] * before[j]
                else:
                    k_now[:] = 0

    return compiled(backward, keep=True)
