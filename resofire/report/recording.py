"""Record a network while it reads a sequence: spikes and potentials of every layer that fires.

Layers have the names of the network; `title` is what the page calls them.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..nn import Neuron, SpatialNeuron
from ..nn.firing import Firing

KINDS = {
    "token_neuron": "temporal", "token_neuron_reverse": "temporal, reversed", "channel_neuron": "spatial",
    "neurons": "temporal",
}  # fmt: skip


class Layer(NamedTuple):
    """One layer's part in a call of the network."""

    spikes: Tensor  # [B, T, N] or packed [1, S, N], True where it fired
    above: Tensor | None  # the potential above its threshold, of the same shape; None unless asked for or unknown


@contextmanager
def recorded(model: nn.Module, *, potentials: bool = False) -> Iterator[dict[str, Layer]]:
    """Record every call of the network inside, without gradient.

    Blocks run composed from their parts; the network is left as it was.

    Args:
        model: Any network; layers are recorded that are a `Neuron` or `SpatialNeuron`, or fire and have `scan`.
        potentials: Record the argument of `spike`, too, where the layer has `trace`. Slow: step by step.

    Yields:
        The layers of the last call by name, in the order in which they ran.
    """
    layers: dict[str, Layer] = {}
    undo: list[Callable[[], None]] = []
    for name, module in model.named_modules():
        if isinstance(module, SpatialNeuron):
            # A hook on one of its parts also keeps a block from running as one fused operator.
            undo.append(module.register_forward_hook(_spatial(layers, name, potentials)).remove)
        elif isinstance(module, Firing) and hasattr(module, "scan"):
            module.scan = _temporal(layers, name, module, module.scan, potentials)
            undo.append(lambda module=module: delattr(module, "scan"))  # type: ignore[misc]
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad():
            model.eval()
            yield layers
    finally:
        for remove in undo:
            remove()
        for module, mode in modes:
            module.training = mode


def _spatial(layers: dict[str, Layer], name: str, potentials: bool) -> Any:
    def hook(module: SpatialNeuron, inputs: tuple[Tensor], spikes: Tensor) -> None:
        layers[name] = Layer(spikes != 0, inputs[0] - module.threshold if potentials else None)

    return hook


def _temporal(layers: dict[str, Layer], name: str, module: Any, scan: Any, potentials: bool) -> Any:
    def wrapper(x: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None, reverse: bool = False) -> Any:
        spikes, last = scan(x, state, cu_seqlens=cu_seqlens, reverse=reverse)
        above = _above(module, x, cu_seqlens, reverse) if potentials and isinstance(module, Neuron) else None
        layers[name] = Layer(spikes != 0, above)
        return spikes, last

    return wrapper


def _above(neuron: Neuron, x: Tensor, cu_seqlens: Tensor | None, reverse: bool) -> Tensor:
    """The argument of `spike`; `trace` takes whole sequences in their own direction only."""
    bounds = [0, x.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
    pieces = [x[:, start:end] for start, end in pairwise(bounds) if end > start]
    traces = [neuron.trace(piece.flip(1) if reverse else piece).argument for piece in pieces]
    return torch.cat([trace.flip(1) if reverse else trace for trace in traces], 1) if traces else x[:, :0]


class Place(NamedTuple):
    """The place of a layer: the number of its block from 1 on, and its kind of neuron."""

    block: int
    kind: str


def place(name: str) -> Place:
    """The place of a layer, e.g. of encoder.blocks.0.token_neuron; one with a name of its own keeps it as its kind."""
    numbers = re.findall(r"\.(\d+)", name)
    last = re.sub(r"\.\d+$", "", name).rsplit(".", 1)[-1]
    return Place(int(numbers[-1]) + 1 if numbers else 1, KINDS.get(last, name))


def title(name: str) -> str:
    """A layer for people: block 1, temporal."""
    block, kind = place(name)
    return name if kind == name else f"block {block}, {kind}"
