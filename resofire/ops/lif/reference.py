"""The LIF as a plain loop over time under autograd: the definition that every other backend is tested against."""

import torch
from torch import Tensor

from ..packing import each_sequence
from ..registry import Call
from ..surrogate import Surrogate, spike


def step(
    current: Tensor, coefficients: Tensor, u: Tensor, reset: str, full: bool, surrogate: Surrogate
) -> tuple[Tensor, Tensor, Tensor]:
    """One time step of [B, N]: the spikes, the state after the reset, and the potential before it."""
    beta, threshold = coefficients.unbind(0)
    peak = beta * u + current
    spikes = spike(peak - threshold, surrogate)
    carried = spikes if full else spikes.detach()
    if reset == "soft":
        return spikes, peak - threshold * carried, peak
    if reset == "hard":
        # A potential of +∞ fires and is reset to 0 like any other; ∞ · 0 would be NaN.
        return spikes, torch.where((peak == torch.inf) & (carried > 0), 0.0, peak * (1 - carried)), peak
    return spikes, peak, peak


def walk(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    (u,) = state.unbind(0)
    spikes = []
    for t in range(current.shape[1]):
        s, u, _ = step(current[:, t], call.coefficients, u, call.reset, call.full, call.surrogate)
        spikes.append(s)
    return torch.stack(spikes, 1), u[None]


run = each_sequence("lif", walk)


def why_not(call: Call) -> str | None:
    return None
