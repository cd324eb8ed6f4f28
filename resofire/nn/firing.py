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
    """A module that fires. It reports its fire rate to whoever watches (`fire_rates`)."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[Watcher] = []

    def __getstate__(self) -> dict[str, Any]:
        """The state of copies and pickles, without watchers: nobody would ever remove them."""
        return {**self.__dict__, "_watchers": []}

    def _fired(self, spikes: Tensor) -> Tensor:
        """Return raw spikes (0 or 1) unchanged; their rate is computed only where someone watches."""
        if self._watchers:
            gradient = any(watcher.gradient for watcher in self._watchers)
            self._fired_rate(_rate(spikes if gradient else spikes.detach()), spikes.numel())
        return spikes

    def _fired_rate(self, rate: Tensor, count: int) -> None:
        """Report a rate that was computed elsewhere."""
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
        self._fired: dict[str, Tensor] = {}
        self._seen: dict[str, int] = {}

    def add(self, name: str, rate: Tensor, count: int) -> None:
        """Count a layer's rate over `count` neurons and steps."""
        # In float64 the exact number of spikes can be recovered from the mean.
        fired = rate.double() * count
        self._fired[name] = self._fired[name] + fired if name in self._fired else fired
        self._seen[name] = self._seen.get(name, 0) + count

    def __getitem__(self, name: str) -> float:
        return float(self._fired[name].detach()) / max(1, self._seen[name])

    def as_dict(self) -> dict[str, float]:
        """The rates of all layers by name."""
        return {name: self[name] for name in self._fired}

    def tensors(self) -> dict[str, Tensor]:
        """The rates as [] tensors, with their graph if `fire_rates(gradient=True)`."""
        return {name: fired / max(1, self._seen[name]) for name, fired in self._fired.items()}


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
