"""The PRF as a plain loop over time under autograd: the definition that every other backend is tested against."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..packing import each_sequence
from ..registry import Call
from ..surrogate import Surrogate, spike


class Coefficients(NamedTuple):
    """The coefficients of the equation, each [N]; `gain` is Δ."""

    phi_re: Any
    phi_im: Any
    gain: Any
    threshold: Any


class State(NamedTuple):
    """The state of the equation, each [B, N]."""

    u: Any
    r: Any


def dynamics(
    current: Any, state: Any, c: Any, spike: Callable[[Any], Any], *, reset: str, full: bool
) -> tuple[Any, dict[str, Any]]:
    """The equation of one step, for `resofire.ops.equation`: the spikes, and the state after the reset."""
    u = c.phi_re * state.u - c.phi_im * state.r + c.gain * current
    r = c.phi_im * state.u + c.phi_re * state.r
    s = spike(u - c.threshold)
    if reset == "soft":
        u = u - c.threshold * (s if full else s.detach())
    return s, {"u": u, "r": r}


def step(
    current: Tensor, coefficients: Tensor, u: Tensor, r: Tensor, reset: str, full: bool, surrogate: Surrogate
) -> tuple[Tensor, Tensor, Tensor]:
    """One time step of [B, N]: the spikes, and the state after the reset."""
    spikes, after = dynamics(
        current, State(u, r), Coefficients(*coefficients), lambda x: spike(x, surrogate), reset=reset, full=full
    )
    return spikes, after["u"], after["r"]


def walk(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    u, r = state.unbind(0)
    spikes = []
    for t in range(current.shape[1]):
        s, u, r = step(
            current[:, t], call.coefficients, u, r, reset=call.reset, full=call.full, surrogate=call.surrogate
        )
        spikes.append(s)
    return torch.stack(spikes, 1), torch.stack((u, r))


run = each_sequence("prf", walk)


def why_not(call: Call) -> str | None:
    return None
