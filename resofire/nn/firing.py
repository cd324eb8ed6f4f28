"""Fire rates: modules that fire report how much, and `fire_rates` collects it."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Watcher(NamedTuple):
    """Receives (spikes per neuron and time step as a [] tensor, how many values that is the mean of)."""

    report: Callable[[Tensor, int], None]
    gradient: bool


class Firing(nn.Module):
    """A module that fires. It reports its fire rate to the watchers that `fire_rates` adds."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[Watcher] = []

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies and pickles, without watchers, which `fire_rates` could not remove from a copy."""
        return {**self.__dict__, "_watchers": []}

    def _report_spikes(self, spikes: Tensor) -> Tensor:
        """Report the rate of raw spikes (0 or 1) to the watchers, if there are any; return the spikes unchanged."""
        if self._watchers:
            gradient = any(watcher.gradient for watcher in self._watchers)
            self._report_rate(_rate(spikes if gradient else spikes.detach()), spikes.numel())
        return spikes

    def _report_rate(self, rate: Tensor, count: int) -> None:
        """Report a fire rate, the mean of `count` values, to the watchers."""
        for watcher in self._watchers:
            watcher.report(rate, count)


def _rate(spikes: Tensor) -> Tensor:
    if spikes.numel() == 0:
        return spikes.sum()
    if spikes.requires_grad:
        return spikes.to(torch.promote_types(spikes.dtype, torch.float32)).mean()
    return (spikes != 0).sum().double() / spikes.numel()


class FireRates:
    """Spikes per neuron and time step of each layer, accumulated inside `fire_rates`."""

    def __init__(self) -> None:
        self._spikes: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, rate: Tensor, count: int) -> None:
        """Add a layer's rate, the mean over `count` values (neurons × steps)."""
        # In float64 the exact number of spikes can be recovered from the mean.
        spikes = rate.double() * count
        self._spikes[name] = self._spikes[name] + spikes if name in self._spikes else spikes
        self._counts[name] = self._counts.get(name, 0) + count

    def __getitem__(self, name: str) -> float:
        return float(self._spikes[name].detach()) / max(1, self._counts[name])

    def as_dict(self) -> dict[str, float]:
        """The rates of all layers by name."""
        return {name: self[name] for name in self._spikes}

    def tensors(self) -> dict[str, Tensor]:
        """The rates as [] tensors, with their graph if `fire_rates(gradient=True)`."""
        return {name: fired / max(1, self._counts[name]) for name, fired in self._spikes.items()}


@contextmanager
def fire_rates(model: nn.Module, *, gradient: bool = False) -> Iterator[FireRates]:
    """Watch every module of `model` that fires; read the rates inside the block or after it.

    Args:
        model: Any module; its neurons may be called through `forward`, `scan`, `step` or a fused block.
        gradient: Keep the graph of the rates (`FireRates.tensors`), so that they can be trained through the surrogates.

    Yields:
        The rates, by the name of each layer.

    Example:
        >>> with fire_rates(model) as rates:
        ...     logits = model(x)
        >>> rates.as_dict()
    """
    rates = FireRates()
    watched = []

    def report(name: str, rate: Tensor, count: int) -> None:
        rates.add(name, rate if gradient else rate.detach(), count)

    for name, module in model.named_modules():
        if isinstance(module, Firing):
            watcher = Watcher(functools.partial(report, name), gradient)
            module._watchers.append(watcher)
            watched.append((module, watcher))
    try:
        yield rates
    finally:
        for module, watcher in watched:
            module._watchers.remove(watcher)
