"""The paper's parallel form, shared by both neurons: potentials by FFT, then the decoupled reset.

Without a reset the potential is a causal convolution of the current with the powers of the (complex) decay A.
A soft reset subtracts V at every spike, and the subtracted amount decays by the same powers, so that

    u_t = u'_t - V Re a_t,    u' = K * c,    a_t = A (a_{t-1} + s_{t-1}),    s_t = [u'_t ≥ V (1 + Re a_t)]:

the reset moves into the threshold d_t = V (1 + Re a_t), one O(L) scan over u'. Once the spikes are known, a is a
convolution again, through which gradients reach the decay.
"""

import torch
from torch import Tensor

from .surrogate import Surrogate, spike


def powers(decay: Tensor, length: int) -> Tensor:
    """decay^0 … decay^(length-1) as [length, N], by doubling: no logarithm, so that a decay of zero works."""
    table = torch.ones_like(decay)[None]
    square = decay
    while table.shape[0] < length:
        table = torch.cat([table, table * square])
        square = square * square
    return table[:length]


def convolve(signal: Tensor, kernel: Tensor, ahead: Tensor | None = None, *, dim: int = 1) -> Tensor:
    """The convolution of a real signal with real kernels along time.

    Args:
        signal: x [B, T, N], or [B, N, T] with dim 2.
        kernel: K [T, N] or [N, T], of the present and the past: y_t = Σ_k K_k x_{t-k}.
        ahead: A kernel of the future, added to that: Σ_k ahead_k x_{t+1+k}; None: causal.
        dim: Where time is in the signal.
    """
    length = signal.shape[dim]
    size = fast_size(2 * length - 1)
    if ahead is not None:
        # What is ahead lies at the end: the product of transforms is a circular convolution.
        future = ahead.narrow(dim - 1, 0, length - 1).flip(dim - 1)
        gap = torch.zeros_like(kernel.narrow(dim - 1, 0, 1)).repeat_interleave(size - 2 * length + 1, dim - 1)
        kernel = torch.cat((kernel, gap, future), dim - 1)
    product = torch.fft.rfft(signal, size, dim=dim) * torch.fft.rfft(kernel, size, dim=dim - 1)
    return torch.fft.irfft(product, size, dim=dim).narrow(dim, 0, length)


def fast_size(least: int) -> int:
    """The smallest size ≥ `least` that is a power of two or three quarters of one."""
    size = 1 << max(0, least - 1).bit_length()
    return 3 * size // 4 if size >= 4 and 3 * size // 4 >= least else size


def reset_scan(potential: Tensor, decay: Tensor, threshold: Tensor) -> Tensor:
    """The decoupled reset (the paper's f_D): which steps fire, from the potential u' without reset [B, T, N]."""
    fired = torch.empty(potential.shape, dtype=torch.bool, device=potential.device)
    carried = torch.zeros_like(potential[:, 0]).to(decay.dtype)
    for t in range(potential.shape[1]):
        now = potential[:, t] >= threshold * (1 + carried.real)
        fired[:, t] = now
        carried = decay * (carried + now)
    return fired


def walk(
    current: Tensor, decay: Tensor, gain: Tensor | float, threshold: Tensor, *, start: Tensor | None, soft: bool,
    surrogate: Surrogate,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Spikes [B, T, N] and the final (complex) potential [B, N], after the reset.

    Args:
        current: Input [B, T, N].
        decay: A [N], real or complex.
        gain: Factor on the current, a number or [N].
        threshold: V [N].
        start: Initial potential [B, N]; None is 0.
        soft: Whether a spike subtracts V.
        surrogate: The derivative of a spike.
    """
    length, dtype = current.shape[1], current.dtype
    # float64, because a phase of 10⁵ turns needs it; the kernel is [T, N], so that costs little.
    wide = decay.to(torch.complex128 if decay.is_complex() else torch.float64)
    table = powers(wide, length + 1)
    # A soft reset compares u' with d, both larger than their difference: float64 again.
    work = torch.float64 if soft else dtype
    current = current.to(work)
    potential = convolve(current, (gain * table[:-1].real).to(work))
    last = gain * _final(current, table[:-1])
    if start is not None:
        fading = table[1:] * start.to(wide.dtype)[:, None]
        potential = potential + fading.real.to(work)
        last = last + fading[:, -1]
    if not soft:
        return spike(potential - threshold, surrogate), last.to(decay.dtype)
    threshold = threshold.to(work)
    fired = reset_scan(potential.detach(), wide.detach(), threshold.detach())
    fired_values = fired.to(work)
    # a_t = Σ_{k≥1} A^k s_{t-k}: the spikes, delayed by one step, convolved with the powers from 1 on.
    delayed = torch.nn.functional.pad(fired_values, (0, 0, 1, 0))[:, :-1]
    carried = convolve(delayed, table[1:].real)
    spikes = spike(potential - threshold * (1 + carried), surrogate, fired)
    last = last - threshold * _final(fired_values, table[:-1])
    return spikes.to(dtype), last.to(decay.dtype)


def _final(signal: Tensor, table: Tensor) -> Tensor:
    """Σ_t A^(T-1-t) signal_t as [B, N]: the contribution of the signal to the final potential."""
    weights = table.flip(0)
    if not weights.is_complex():
        return (signal * weights.to(signal.dtype)).sum(1)
    re, im = ((signal * part.to(signal.dtype)).sum(1) for part in (weights.real, weights.imag))
    return torch.complex(re, im)
