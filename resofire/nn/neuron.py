"""What all neuron modules share: the three verbs, and the fire-rate hooks.

A neuron holds parameters; the equation is the operator's (`resofire.ops`). State is handed in and out, never kept.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..ops import Surrogate
from ..ops.checks import require_choice, require_real, require_surrogate
from ..ops.registry import names
from .counts import Count, CountError, count_dynamics, count_neuron


class Trace(NamedTuple):
    """What went on inside, for plots: each [B, T, N]. `u` is the potential before the reset, a PRF alone has `r`."""

    spikes: Tensor
    u: Tensor
    r: Tensor | None


class Watcher(NamedTuple):
    """Who is told how much a layer fired: (spikes per neuron and time step as a [] tensor, how many of those)."""

    tell: Callable[[Tensor, int], None]
    gradient: bool


class Firing(nn.Module):
    """A module that fires. It tells its fire rate to whoever watches (`fire_rates`)."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[Watcher] = []

    def _fired(self, spikes: Tensor) -> Tensor:
        """Passes raw spikes (0 or 1) on; their rate is worked out only where someone watches."""
        if self._watchers:
            wanted = any(watcher.gradient for watcher in self._watchers)
            self._fired_rate(_rate(spikes if wanted else spikes.detach()), spikes.numel())
        return spikes

    def _fired_rate(self, rate: Tensor, count: int) -> None:
        """Tells a rate that has been worked out elsewhere."""
        for watcher in self._watchers:
            watcher.tell(rate, count)


def _rate(spikes: Tensor) -> Tensor:
    if spikes.numel() == 0:
        return spikes.sum()
    if spikes.requires_grad:
        return in_full(spikes).mean()
    return (spikes != 0).sum().double() / spikes.numel()


class Neuron(Firing):
    """A temporal neuron over `features` channels. Subclasses give `scan`, `step` and `trace`."""

    def __init__(self, features: int) -> None:
        super().__init__()
        if isinstance(features, bool) or not isinstance(features, int) or features < 1:
            raise ValueError(f"{type(self).__name__}: features must be a positive integer, got {features!r}")
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

    def rows(self) -> Tensor:
        """The coefficients of the equation as the operators take them, [C, features], the threshold last."""
        raise NotImplementedError

    def init_state(self, batch: int) -> Any:
        """The zero state of `batch` sequences. None means the same to `scan` and `step`."""
        return None

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
        return in_full(self.get_buffer(name)) if log is None else in_full(log).exp()

    def count(self, name: str, steps: float) -> Count:
        """Count the operations of `steps` time steps, found by running `dynamics` once.

        Args:
            name: The layer's name in its network.
            steps: Time steps per inference.

        Raises:
            CountError: The neuron has no `dynamics`, or it uses an operation whose cost is not known.
        """
        dynamics = getattr(self, "dynamics", None)
        if dynamics is None:
            kind = type(self).__name__
            raise CountError(f"count_ops: the {kind} at {name} has neither `dynamics` nor its own `count`")
        states: tuple[str, ...] = getattr(self, "states", ())
        coefficients: Any = getattr(self, "coefficients", dict)()
        operations = count_dynamics(dynamics, states, coefficients)
        # What all channels share stays in a register.
        read = sum(isinstance(each, Tensor) and each.dim() > 0 for each in coefficients.values())
        return count_neuron(name, self.features, steps, operations, coefficients=read, states=len(states))


def zero_state(neuron: Any, batch: int) -> Any:
    """The zero state of any module with a neuron's verbs; None, which means the same, if it does not say."""
    return neuron.init_state(batch) if hasattr(neuron, "init_state") else None


def autocast_on(x: Tensor) -> bool:
    """Whether autocast is on where x lies; there are devices that do not know it."""
    return torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type)


def in_full(value: Tensor) -> Tensor:
    """Half precision as float32: a decay of 0.9995 would be rounded to 1 in bfloat16."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def require_settings(
    op: str, owner: str, threshold: float, reset: str, resets: tuple[str, ...], reset_gradient: str,
    surrogate: Surrogate, backend: str,
) -> None:  # fmt: skip
    """What a neuron is told besides its time constants, checked when it is built."""
    require_real(owner, "threshold", threshold)
    if isinstance(threshold, Tensor):
        raise TypeError(f"{owner}: threshold must be a number, got a tensor; resofire.ops.{op} takes tensors")
    require_choice(owner, "reset", reset, resets)
    require_choice(owner, "reset_gradient", reset_gradient, ("detached", "full"))
    require_choice(owner, "backend", backend, ("auto", *names(op)))
    require_surrogate(owner, surrogate)


def draw(
    owner: str, name: str, value: float | tuple[float, float], features: int, *, log: bool = False, even: bool = False
) -> Tensor:
    """[features] values: all the same for a number; for a pair (low, high) drawn uniformly, or log-uniformly.

    even    not drawn: the middles of `features` equal shares of the range, in a random order
    """
    require_range(owner, name, value)
    if not isinstance(value, tuple):
        return torch.full((features,), float(value))
    low, high = value
    if log:
        require_above(owner, name, value, 0)
        low, high = math.log(low), math.log(high)
    if even:
        values = low + (high - low) * (torch.randperm(features) + 0.5) / features
    else:
        values = torch.empty(features).uniform_(low, high)
    return values.exp() if log else values


def require_range(owner: str, name: str, value: float | tuple[float, float]) -> None:
    """A number or a pair that does not fall. (A list is no pair: it might mean two ends or two channels.)"""
    ends = value if isinstance(value, tuple) else (value, value)
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in ends)
    if len(ends) != 2 or not numbers or ends[0] > ends[1]:
        raise ValueError(f"{owner}: {name} must be a number or a pair (low, high) with low ≤ high, got {value!r}")


def require_above(owner: str, name: str, value: float | tuple[float, float], least: float) -> None:
    """For what lives in log space: a number, or a pair's lower end, must be above `least`."""
    require_range(owner, name, value)
    if not (value[0] if isinstance(value, tuple) else value) > least:
        raise ValueError(f"{owner}: {name} must be above {least:g}, got {value!r}")


def spread(values: Tensor) -> str:
    """The range of some values, for people: one number if they are all the same."""
    if values.is_meta:
        return "?"
    low, high = (f"{float(x):.3g}" for x in torch.aminmax(values.detach()))
    return low if low == high else f"{low}…{high}"


class FireRates:
    """Spikes per neuron and time step of each layer, summed up while `fire_rates` watches."""

    def __init__(self) -> None:
        self._fired: dict[str, Tensor] = {}
        self._seen: dict[str, int] = {}

    def add(self, name: str, rate: Tensor, count: int) -> None:
        # In float64 the number of spikes comes back out of its mean.
        fired = rate.double() * count
        self._fired[name] = self._fired[name] + fired if name in self._fired else fired
        self._seen[name] = self._seen.get(name, 0) + count

    def __getitem__(self, name: str) -> float:
        return float(self._fired[name].detach()) / max(1, self._seen[name])

    def as_dict(self) -> dict[str, float]:
        return {name: self[name] for name in self._fired}

    def tensors(self) -> dict[str, Tensor]:
        """The rates as [] tensors, with their graph where `fire_rates` was asked for the gradient."""
        return {name: fired / max(1, self._seen[name]) for name, fired in self._fired.items()}


@contextmanager
def fire_rates(model: nn.Module, *, gradient: bool = False) -> Iterator[FireRates]:
    """Watches every module of `model` that fires, called in whatever way; read the rates in the block or after it.

    gradient    keeps the graph of the rates (`FireRates.tensors`): through the surrogates they can be trained
    """
    rates = FireRates()
    watched = []

    def tell(name: str, rate: Tensor, count: int) -> None:
        rates.add(name, rate if gradient else rate.detach(), count)

    for name, module in model.named_modules():
        if isinstance(module, Firing):
            watcher = Watcher(functools.partial(tell, name), gradient)
            module._watchers.append(watcher)
            watched.append((module, watcher))
    try:
        yield rates
    finally:
        for module, watcher in watched:
            module._watchers.remove(watcher)
