"""Stochastic SpikingS4: a state space that gives the probability of a spike. M. Bal, A. Sengupta, "Rethinking Spiking
Neural Networks as State Space Models", 2024; later "P-SpikeSSM", ICLR 2025.

    y = SSM(U)        P(s = 1) = clamp(y, 0, 1)        U⁺ = clamp(norm(U + GLU(W s + b)), 0, 1)

Sampling, mixing the spikes of all channels, and fusing with a clamped shortcut are the original's SpikeSampler,
SpikeMixer and ClampFuse. The gradient of a spike is that of its expectation: 1 where 0 < y < 1.

What is ours: the mixer is the GLU of the other blocks, and the norm starts at 1/2 ± 1/4, so that the clamp cuts little.
In training the noise is new in each step. In evaluation it is fixed, a table of each block by time step and channel:
then evaluations are reproducible and a sequence does not depend on its batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ...nn.config import settings_of
from ...nn.counts import NUMBER, Count
from ...nn.firing import Firing
from ...ops import Rectangle
from ...ops.surrogate import spike
from .binary_s4d import count_spiking_glu, count_threshold
from .s4d import S4D, S4DConfig, dropped


@dataclass(frozen=True)
class StochasticS4Config(S4DConfig):
    """The settings of a `StochasticS4`."""

    def build(self, features: int) -> "StochasticS4":
        return StochasticS4(features, **settings_of(self))


class StochasticS4(S4D):
    """One block of Stochastic SpikingS4.

    Args:
        features: Number of channels.
        settings: As in `S4D`.
    """

    def __init__(self, features: int, **settings: Any) -> None:
        super().__init__(features, **settings)
        self.neuron = SpikeSampler()
        with torch.no_grad():
            self.norm.weight.fill_(0.25)
            self.norm.bias.fill_(0.5)

    def forward(self, u: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        y = self.activate(self.space(u, cu_seqlens=cu_seqlens), cu_seqlens)
        mixed = dropped(self.mix(y), self.dropout, self.training)
        return self.norm(u + mixed).clamp(0, 1)

    def activate(self, y: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        return self.neuron(y, cu_seqlens)

    def count_mixer(self, name: str, steps: float, rates: Mapping[str, float]) -> list[Count]:
        features = self.features
        return [
            # A random number is charged as nothing: it may come from the device itself.
            count_threshold(f"{name}.neuron", features, steps),
            *count_spiking_glu(self, name, steps, rates),
            Count(layer=f"{name}.clamp", component="residual", times=steps, compare=2 * features,
                  activations_read=NUMBER * features, activations_written=NUMBER * features),
        ]  # fmt: skip


class SpikeSampler(Firing):
    """Spikes with probability clamp(y, 0, 1)."""

    seed: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.randint(2**31, ()))

    def forward(self, y: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        noise = torch.rand_like(y) if self.training else self._fixed_noise(y, cu_seqlens)
        # Rectangle(1) is 1 within 1/2 of the centre.
        return self._report_spikes(spike(y - 0.5, Rectangle(1.0), noise < y))

    def _fixed_noise(self, y: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        """Noise of each time step and channel, the same for all sequences."""
        if y.shape[1] == 0:
            return y
        generator = torch.Generator().manual_seed(int(self.seed))
        lengths = [y.shape[1]] if cu_seqlens is None else [end - start for start, end in pairwise(cu_seqlens.tolist())]
        table = torch.rand(max(lengths), y.shape[-1], generator=generator, dtype=torch.float32)
        noise = torch.cat([table[:length] for length in lengths])
        return noise.to(y.device, y.dtype)
