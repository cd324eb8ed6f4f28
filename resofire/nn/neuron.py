"""What all neuron modules share: the three verbs, and the fire-rate hooks.

A neuron holds parameters; the equation is the operator's (`resofire.ops`). State is handed in and out, never kept.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Trace(NamedTuple):
    """What went on inside, for plots: each [B, T, N]. `u` is the potential before the reset, `r` is None for a LIF."""

    spikes: Tensor
    u: Tensor
    r: Tensor | None


class Neuron(nn.Module):
    """A temporal neuron over `features` channels. Subclasses give `scan`, `step` and `trace`."""

    def __init__(self, features: int) -> None:
        super().__init__()
        if isinstance(features, bool) or not isinstance(features, int) or features < 1:
            raise ValueError(f"{type(self).__name__}: features must be a positive whole number, got {features!r}")
        self.features = features

    def scan(self, x: Tensor, state: Any = None, **options: Any) -> tuple[Tensor, Any]:
        """A whole sequence [B, T, N] from a state: the spikes and the state after it."""
        raise NotImplementedError

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One time step [B, N] from a state (None: zero): the spikes and the state after it."""
        raise NotImplementedError

    def trace(self, x: Tensor) -> Trace:
        """Potentials and spikes of a whole sequence, by the reference; without gradient."""
        raise NotImplementedError

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """The spikes of a whole sequence [B, T, N], from a zero state."""
        return self.scan(x, None, **options)[0]

    def _hold(self, name: str, value: Tensor, trained: bool) -> None:
        """Keeps a positive quantity: trained as the parameter `log_<name>`, otherwise as the buffer `<name>`."""
        if trained:
            self.register_parameter(f"log_{name}", nn.Parameter(value.log()))
        else:
            self.register_buffer(name, value)

    def _held(self, name: str) -> Tensor:
        log = self._parameters.get(f"log_{name}")
        return self._buffers[name] if log is None else log.exp()  # type: ignore[return-value]


def draw(owner: str, name: str, value: float | tuple[float, float], features: int, *, log: bool = False) -> Tensor:
    """[features] values: all the same for a number, drawn uniformly (or log-uniformly) for a pair (low, high)."""
    ends = value if isinstance(value, tuple) else (value, value)
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in ends)
    if len(ends) != 2 or not numbers or ends[0] > ends[1]:
        raise ValueError(f"{owner}: {name} must be a number or a pair (low, high) with low ≤ high, got {value!r}")
    if not isinstance(value, tuple):
        return torch.full((features,), float(value))
    if not log:
        return torch.empty(features).uniform_(*value)
    require_above(owner, name, value, 0)
    return torch.empty(features).uniform_(math.log(value[0]), math.log(value[1])).exp()


def require_above(owner: str, name: str, value: float | tuple[float, float], least: float) -> None:
    """For what lives in log space: a number, or a pair's lower end, must be above `least`."""
    if not (value[0] if isinstance(value, tuple) else value) > least:
        raise ValueError(f"{owner}: {name} must be above {least:g}, got {value!r}")


class FireRates:
    """Spikes per neuron and time step of each layer, summed up while `fire_rates` watches."""

    def __init__(self) -> None:
        self._fired: dict[str, Tensor] = {}
        self._seen: dict[str, int] = {}

    def add(self, name: str, spikes: Tensor) -> None:
        fired = (spikes != 0).sum()
        self._fired[name] = self._fired.get(name, torch.zeros_like(fired)) + fired
        self._seen[name] = self._seen.get(name, 0) + spikes.numel()

    def __getitem__(self, name: str) -> float:
        return float(self._fired[name]) / max(1, self._seen[name])

    def as_dict(self) -> dict[str, float]:
        return {name: self[name] for name in self._fired}


@contextmanager
def fire_rates(model: nn.Module) -> Iterator[FireRates]:
    """Watches every module of `model` that fires (has `fires = True`) inside the block; read the rates afterwards."""
    rates = FireRates()

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            rates.add(name, output.detach())

        return hook

    handles = [
        module.register_forward_hook(watch(name))
        for name, module in model.named_modules()
        if getattr(module, "fires", False)
    ]
    try:
        yield rates
    finally:
        for handle in handles:
            handle.remove()
