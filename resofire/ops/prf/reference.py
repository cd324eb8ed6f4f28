"""The PRF as a plain loop over time under autograd: the definition that every other backend is tested against."""

import torch
from torch import Tensor

from ..packing import each_sequence
from ..registry import Call
from ..surrogate import Surrogate, spike


def step(
    current: Tensor, coefficients: Tensor, u: Tensor, r: Tensor, reset: str, full: bool, surrogate: Surrogate
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One time step of [B, N]: the spikes, the state after the reset, and the potential before it."""
    phi_re, phi_im, delta, threshold = coefficients.unbind(0)
    peak = phi_re * u - phi_im * r + delta * current
    r = phi_im * u + phi_re * r
    spikes = spike(peak - threshold, surrogate)
    if reset == "none":
        return spikes, peak, r, peak
    return spikes, peak - threshold * (spikes if full else spikes.detach()), r, peak


def walk(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    u, r = state.unbind(0)
    spikes = []
    for t in range(current.shape[1]):
        s, u, r, _ = step(current[:, t], call.coefficients, u, r, call.reset, call.full, call.surrogate)
        spikes.append(s)
    return torch.stack(spikes, 1), torch.stack((u, r))


run = each_sequence("prf", walk)


def why_not(call: Call) -> str | None:
    return None
