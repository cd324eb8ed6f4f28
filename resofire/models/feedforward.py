"""The plain spiking network: Linear, neuron, Linear, neuron, …, Linear. No norm, no shortcut."""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..nn import SpikeLinear
from ..nn.input_linear import InputLinear
from ..nn.neuron import zero_state
from ..ops.checks import require_real
from .config import NetworkConfig, require_count
from .network import Network, require_values
from .sequences import StreamState, advance, arrange, require_state, start


@dataclass(frozen=True, kw_only=True)
class FeedforwardConfig(NetworkConfig):
    """The settings of a `Feedforward`."""

    sizes: tuple[int, ...]
    """Inputs, neurons of each layer, classes: 1 64 256 256 10 has three layers of neurons."""
    gain: float = 1.0
    """What the first weights before neurons are multiplied by: without norms, deep layers may be silent at 1."""

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


class Feedforward(Network):
    """Values [B, T, inputs] to classes. The first Linear is dense, as its input is no spikes."""

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
            SpikeLinear(hidden[-1], classes, backend="auto" if config.pool == "mean" else config.backend)
        )

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """Logits [B, classes]; shapes, `lengths` and `cu_seqlens` as in `Classifier`.

        The mean over time of the last Linear's output is the Linear of the spikes' mean, which is cheaper.
        """
        self._require_input("Feedforward", x, "B, T")
        x, sequences = arrange("Feedforward", x, lengths, cu_seqlens)
        for linear, neuron in self._layers():
            x, _ = neuron.scan(linear(x), None, cu_seqlens=sequences.cu_seqlens)
        logits = self.linears[-1](sequences.pool(x, self.config.pool))
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
        pooled, state = advance(tuple(layers), state, x)
        return self.linears[-1](pooled), state

    def _layers(self) -> list[tuple[nn.Module, Any]]:
        return list(zip(self.linears[:-1], self.neurons, strict=True))

    def _weight(self) -> Tensor:
        return self.linears[0].get_parameter("weight")

    def _require_input(self, owner: str, x: Tensor, dims: str) -> None:
        require_values(owner, x, dims, self.config.sizes[0], self._weight())
