"""The LIF as a plain loop over time under autograd: the definition that every other backend is tested against."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..packing import each_sequence
from ..registry import Call
from ..surrogate import Surrogate, spike


class Coefficients(NamedTuple):
    """The coefficients of the equation, each [N]."""

    beta: Any
    threshold: Any


class State(NamedTuple):
    """The state of the equation, [B, N]."""

    u: Any


def dynamics(
    current: Any, state: Any, c: Any, spike: Callable[[Any], Any], *, reset: str, full: bool
) -> tuple[Any, dict[str, Any]]:
    """The equation of one step, for `resofire.ops.equation`: the spikes, and the state after the reset."""
    u = c.beta * state.u + current
    s = spike(u - c.threshold)
    carried = s if full else s.detach()
    if reset == "soft":
        u = u - c.threshold * carried
    elif reset == "hard":
        u = u * (1 - carried)
    return s, {"u": u}


def step(
    current: Tensor, coefficients: Tensor, u: Tensor, reset: str, full: bool, surrogate: Surrogate
) -> tuple[Tensor, Tensor]:
    """One time step of [B, N]: the spikes, and the state after the reset."""
    spikes, after = dynamics(
        current, State(u), Coefficients(*coefficients), lambda x: spike(x, surrogate), reset=reset, full=full
    )
    if reset == "hard":
        # A potential of +∞ fires and is reset to 0 like any other; ∞ · 0 would be NaN.
        return spikes, torch.where(after["u"].isnan() & (spikes > 0), 0.0, after["u"])
    return spikes, after["u"]


def walk(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    (u,) = state.unbind(0)
    spikes = []
    for t in range(current.shape[1]):
        s, u = step(current[:, t], call.coefficients, u, reset=call.reset, full=call.full, surrogate=call.surrogate)
        spikes.append(s)
    return torch.stack(spikes, 1), u[None]


run = each_sequence("lif", walk)


def why_not(call: Call) -> str | None:
    return None
