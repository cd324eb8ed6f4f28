"""The plain spiking network: Linear, neuron, Linear, neuron, …, Linear. No norm, no shortcut."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..nn import SpikeLinear
from ..nn.counts import Count, count_dense, count_pool, count_synapses, count_temporal, rate_of
from ..nn.folded import Folded, Layer, fold_method, to_array, weight_rows
from ..nn.linear import InputLinear
from ..nn.neuron import zero_state
from ..ops.checks import require_count, require_real
from .config import NetworkConfig, require_class_names
from .network import Network, require_values
from .sequences import StreamState, advance, arrange, require_state, start


@dataclass(frozen=True, kw_only=True)
class FeedforwardConfig(NetworkConfig):
    """The settings of a `Feedforward`."""

    sizes: tuple[int, ...]
    """Inputs, neurons of each layer, classes: 1 64 256 256 10 has three layers of neurons."""
    gain: float = 1.0
    """Factor on the initial weights of layers that feed neurons. Without norms, deep layers may stay silent at 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sizes, tuple) or len(self.sizes) < 3:
            raise ValueError(
                f"FeedforwardConfig: sizes must be a tuple of at least three (inputs, neurons, classes), "
                f"got {self.sizes!r}"
            )
        for i, size in enumerate(self.sizes):
            require_count("FeedforwardConfig", f"sizes[{i}]", size)
        require_real("FeedforwardConfig", "gain", self.gain)
        require_class_names("FeedforwardConfig", self.class_names, self.classes)

    def build(self) -> "Feedforward":
        return Feedforward(self)

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return self.sizes[0]

    @property
    def vocabulary(self) -> None:
        """None: the network takes values, no tokens."""
        return None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.sizes[-1]

    @property
    def layers(self) -> int:
        return len(self.sizes)


class Feedforward(Network):
    """Values [B, T, inputs] to classes. The first Linear is dense, as its input is real-valued.

    Args:
        config: Its settings, a `FeedforwardConfig`.
    """

    config: FeedforwardConfig

    def __init__(self, config: FeedforwardConfig) -> None:
        super().__init__()
        self.config = config
        inputs, *hidden, classes = config.sizes
        self.neurons = nn.ModuleList(config.neuron.build(features) for features in hidden)
        self.linears = nn.ModuleList([InputLinear(inputs, hidden[0])])
        for features, following in itertools.pairwise(hidden):
            self.linears.append(SpikeLinear(features, following, backend=config.backend))
        with torch.no_grad():
            for linear in self.linears:
                linear.get_parameter("weight").mul_(config.gain)
        # The mean of spikes is no spike train, which a backend for those would refuse.
        self.linears.append(
            SpikeLinear(hidden[-1], classes, backend="auto" if config.pool in ("mean", "leaky") else config.backend)
        )

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """Classify whole sequences.

        Args:
            x: Values [B, T, inputs]; packed, [1, S, inputs].
            lengths: Lengths of the sequences [B], from 0 to T; steps after them are not computed.
            cu_seqlens: Bounds of packed sequences [B + 1], int32.

        Returns:
            Logits [B, classes]; with pool "none" [B, T, classes], zero after each end, or [1, S, classes] if packed.
        """
        self._require_input("Feedforward", x, "B, T")
        x, sequences = arrange("Feedforward", x, lengths, cu_seqlens)
        for linear, neuron in self._layers():
            x, _ = neuron.scan(linear(x), None, cu_seqlens=sequences.cu_seqlens)
        # The mean over time of the last Linear's output is the Linear of the spikes' mean, which is cheaper.
        logits = self.linears[-1](sequences.pool(x, self.config.pool, self.config.pool_steps))
        return sequences.restore(logits) if self.config.pool == "none" else logits

    def init_state(self, batch: int) -> StreamState:
        """The state of `batch` streams before their first step."""
        require_count("Feedforward.init_state", "batch", batch)
        layers = tuple(zero_state(neuron, batch) for _, neuron in self._layers())
        return start(layers, self.config.pool, batch, self.config.sizes[-2], self._weight().device)

    def step(self, x: Tensor, state: StreamState | None) -> tuple[Tensor, StreamState]:
        """One time step of [B, inputs] from a state (None: the first step); the logits are as in `Classifier`."""
        self._require_input("Feedforward.step", x, "B")
        if state is None:
            state = self.init_state(x.shape[0])
        require_state("Feedforward.step", state, len(self.neurons))
        layers = []
        for (linear, neuron), layer in zip(self._layers(), state.layers, strict=True):
            x, last = neuron.step(linear(x), layer)
            layers.append(last)
        pooled, state = advance(tuple(layers), state, x, self.config.pool_steps)
        return self.linears[-1](pooled), state

    def _layers(self) -> list[tuple[nn.Module, Any]]:
        return list(zip(self.linears[:-1], self.neurons, strict=True))

    def _weight(self) -> Tensor:
        return self.linears[0].get_parameter("weight")

    def _require_input(self, owner: str, x: Tensor, dims: str) -> None:
        require_values(owner, x, dims, self.config.sizes[0], self._weight())

    def fold(self, floor: float) -> Folded:
        """The network as arrays; `resofire.deploy.fold` calls it, see `resofire.nn.folded`."""
        weights = [weight_rows(linear.get_parameter("weight")) for linear in self.linears]
        biases = [to_array(linear.get_parameter("bias")) for linear in self.linears]
        layers = tuple(
            Layer((fold_method(neuron)(np.ones_like(bias), bias),), rows, fresh=True)
            for neuron, bias, rows in zip(self.neurons, biases[:-1], weights[1:], strict=True)
        )
        return Folded(
            table=weights[0],
            tokens=False,
            layers=layers,
            pool=self.config.pool,
            pool_steps=self.config.pool_steps,
            head=np.eye(len(biases[-1])),
            bias=biases[-1],
            class_names=self.config.class_names,
        )

    @property
    def widths(self) -> tuple[int, ...]:
        """Neurons of each layer."""
        return self.config.sizes[1:-1]

    def count(self, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count all parts, see `resofire.measure.count_ops`. There are no norms to fold."""
        parts = [count_dense(self.linears[0], "linears.0", "encoder", steps)]
        for number, neuron in enumerate(self.neurons):
            active = rate_of(rates, f"neurons.{number}") * self.widths[number]
            parts += count_temporal(neuron, f"neurons.{number}", steps, active)
            following, name = self.linears[number + 1], f"linears.{number + 1}"
            if number + 1 < len(self.neurons):
                parts.append(count_synapses(following, name, "token linear", active, steps))
            elif self.config.pool in ("mean", "leaky"):
                parts += count_pool(self.config.pool, self.widths[-1], steps, 1, active)
                parts.append(count_dense(following, name, "head", 1))
            else:
                # With pool "last" the mean rate stands in for that of the last step, which is not known by itself.
                parts.append(count_synapses(following, name, "head", active, self._head_times(steps)))
        return parts

    def count_frame(self, steps: float, *, fold_norm: bool = False) -> list[Count]:
        """Count input layer, pool and head around blocks that return real values, as a peer of equal size has them."""
        last = len(self.linears) - 1
        return [
            count_dense(self.linears[0], "linears.0", "encoder", steps),
            *count_pool(self.config.pool, self.widths[-1], steps, 1),
            count_dense(self.linears[last], f"linears.{last}", "head", self._head_times(steps)),
        ]

    def _head_times(self, steps: float) -> float:
        return steps if self.config.pool == "none" else 1
