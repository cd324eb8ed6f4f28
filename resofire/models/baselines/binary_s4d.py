"""Binary S4D, and the same with a gated spiking unit: M. Stan and O. Rhodes, "Learning long sequences in spiking neural
networks", Scientific Reports 2024.

    Binary S4D     U⁺ = U + GLU(W s + b)                                  s = [y ≥ V]
    GSU & GELU     U⁺ = U + (W T(z) + b) ⊙ (a T(W') z + b')               z = GELU(y)

with y = SSM(norm(U)) as in S4D. T is ternary: T(x) = [x ≥ h] - [-x ≥ h] with h a share of max |x|. One factor of each
product is thus -1, 0 or 1, so both Linears only add; the other factor is real and does not saturate.

What is ours: V is a setting (0.5); max |x| of an activation is taken over the channels of one time step, so that a
sequence does not depend on its batch; the share 0.15 is that of the PRF paper's release. T(W') has a trained scale a,
initially 1/√D.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...nn import SpatialNeuron
from ...nn.config import settings_of
from ...nn.counts import NUMBER, SPIKE, Count, count_synapses, rate_of
from ...nn.firing import Firing
from ...nn.linear import DenseLinear
from ...ops import ATan, Surrogate
from ...ops.dense_linear import dense_linear
from ...ops.surrogate import spike
from .s4d import S4D, S4DConfig, count_gelu, count_glu

# Threshold of T as a share of the largest magnitude.
SHARE = 0.15


@dataclass(frozen=True)
class BinaryS4DConfig(S4DConfig):
    """The settings of a `BinaryS4D`."""

    threshold: float = 0.5
    """Threshold V of the spikes."""

    def build(self, features: int) -> "BinaryS4D":
        return BinaryS4D(features, **settings_of(self))


class BinaryS4D(S4D):
    """An S4D block with a spike in place of GELU.

    Args:
        features: Number of channels.
        threshold: Where the spike fires.
        settings: As in `S4D`.
    """

    def __init__(self, features: int, *, threshold: float = 0.5, **settings: Any) -> None:
        super().__init__(features, **settings)
        self.neuron = SpatialNeuron(threshold=threshold, amplitude=False)

    def activate(self, y: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        return self.neuron(y)

    def count_mixer(self, name: str, steps: float, rates: Mapping[str, float]) -> list[Count]:
        return [
            count_threshold(f"{name}.neuron", self.features, steps),
            *count_spiking_glu(self, name, steps, rates),
        ]


@dataclass(frozen=True)
class GSUConfig(S4DConfig):
    """The settings of a `GSU`."""

    def build(self, features: int) -> "GSU":
        return GSU(features, **settings_of(self))


class GSU(S4D):
    """An S4D block whose channel mixer is a gated spiking unit.

    Args:
        features: Number of channels.
        settings: As in `S4D`.
    """

    neuron_parameters = ("log_scale",)

    def __init__(self, features: int, **settings: Any) -> None:
        super().__init__(features, **settings)
        self.neuron = Ternary()
        self.mixer = DenseLinear(features, features)
        self.gate = nn.Linear(features, features)
        self.log_scale = nn.Parameter(torch.tensor(-0.5 * math.log(features)))

    def mix(self, y: Tensor) -> Tensor:
        return self.mixer(self.neuron(y)) * dense_linear(y, self.ternary_gate(), self.gate.bias)

    def ternary_gate(self) -> Tensor:
        """The weights a T(W') [D, D]: 0 or one magnitude."""
        weight = self.gate.weight
        return self.log_scale.exp() * ternary(weight, SHARE * weight.detach().abs().amax(), self.neuron.surrogate)

    def count_mixer(self, name: str, steps: float, rates: Mapping[str, float]) -> list[Count]:
        features = self.features
        active = rate_of(rates, f"{name}.neuron") * features
        # Ternary weights are 2 bits; the scale is part of the other factor's weights.
        kept = int((self.ternary_gate() != 0).sum())
        return [
            count_gelu(f"{name}.activation", features, steps),
            # The largest magnitude, and two thresholds.
            Count(layer=f"{name}.neuron", component="spatial neuron", times=steps, compare=3 * features, multiply=1,
                  activations_read=NUMBER * features, activations_written=2 * SPIKE * features),
            count_synapses(self.mixer, f"{name}.mixer", "channel linear", active, steps),
            Count(layer=f"{name}.gate", component="channel linear", times=steps, ac=kept,
                  weights_read=2 * SPIKE * features**2 + NUMBER * features, activations_read=NUMBER * features,
                  activations_written=NUMBER * features),
            Count(layer=f"{name}.product", component="gate", times=steps, multiply=features,
                  activations_read=NUMBER * 2 * features, activations_written=NUMBER * features),
        ]  # fmt: skip


class Ternary(Firing):
    """T(x) with h a share of the largest magnitude among the channels of each time step; its rate is that of |T|."""

    def __init__(self, surrogate: Surrogate = ATan()) -> None:  # noqa: B008 - frozen
        super().__init__()
        self.surrogate = surrogate

    def forward(self, x: Tensor) -> Tensor:
        out = ternary(x, SHARE * x.detach().abs().amax(-1, keepdim=True), self.surrogate)
        self._report_spikes(out.abs())
        return out


def ternary(x: Tensor, h: Tensor, surrogate: Surrogate) -> Tensor:
    """[x ≥ h] - [-x ≥ h]; the gradient is that of both spikes."""
    return spike(x - h, surrogate) - spike(-x - h, surrogate)


def count_threshold(name: str, features: int, steps: float) -> Count:
    """Count spikes without memory: a comparison per channel."""
    return Count(layer=name, component="spatial neuron", times=steps, compare=features,
                 activations_read=NUMBER * features, activations_written=SPIKE * features)  # fmt: skip


def count_spiking_glu(block: S4D, name: str, steps: float, rates: Mapping[str, float]) -> list[Count]:
    """Count a GLU on the spikes of the block's neuron."""
    active = rate_of(rates, f"{name}.neuron") * block.features
    return [
        count_synapses(block.mixer, f"{name}.mixer", "channel linear", active, steps),
        count_glu(f"{name}.gate", block.features, steps),
    ]
