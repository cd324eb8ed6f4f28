"""Spiking LMU: a Legendre memory unit between LIF neurons. Z. Liu, G. Datta, A. Li, P. Beerel, "LMUFormer", ICLR 2024.
The memory: A. Voelker, I. Kajić, C. Eliasmith, "Legendre Memory Units", NeurIPS 2019.

    s = LIF(N U)                  q = LIF(N W_q s)              one channel
    m_t = Ā m_{t-1} + B̄ q_t       θ dm/dt = A m + B q           d channels: Legendre coefficients of the last θ steps
    h = LIF(N W_h [LIF(N m), s])  R = U + N W_o h
    U⁺ = R + N W₂ LIF(N W₁ LIF(N R))

N is a batch norm. A_ij = (2i + 1) (-1 if i < j else (-1)^{i-j+1}) and B_i = (2i + 1) (-1)^i are constants, discretised
by zero-order hold, so m is a convolution of q.

What is ours: the LIF subtracts its threshold at a spike (there it resets to 0). The encoder of `Classifier` replaces
the convolutional patch embedding, which shortens the sequence. Order and window are settings (there 2D and 128), and
the MLP is twice as wide as the stream instead of four times.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...nn import LIF, BatchNorm, Config, SpikeLinear
from ...nn.config import settings_of
from ...nn.counts import NUMBER, Count, count_norm, count_residual, count_synapses, rate_of
from ...nn.linear import DenseLinear
from ...ops.checks import require_count
from ...ops.convolution import convolve
from .padded import in_groups

WIDER = 2


@dataclass(frozen=True)
class SpikingLMUConfig(Config):
    """The settings of a `SpikingLMU`."""

    memory: int = 64
    """Legendre coefficients, the order d of the memory."""
    window: float = 784.0
    """Time steps θ that the memory covers."""
    tau: float = 2.0
    """Time constant of the LIF neurons."""

    def build(self, features: int) -> "SpikingLMU":
        return SpikingLMU(features, **settings_of(self))


class SpikingLMU(nn.Module):
    """One block of a spiking LMU network; the equations are at the top of this file.

    Args:
        features: Channels D of the stream.
        memory: Legendre coefficients, the order of the memory.
        window: Time steps that the memory covers.
        tau: Time constant of the LIF neurons.
    """

    def __init__(self, features: int, *, memory: int = 64, window: float = 784.0, tau: float = 2.0) -> None:
        super().__init__()
        require_count("SpikingLMU", "features", features)
        self.features = features
        self.memory = LegendreMemory(memory, window)
        wide = WIDER * features
        # Each neuron behind its norm, each Linear behind its neuron.
        widths = {"input": features, "query": 1, "memory": memory, "hidden": features, "mixer": features, "wide": wide}
        self.norms = nn.ModuleDict({name: BatchNorm(width) for name, width in widths.items()})
        self.neurons = nn.ModuleDict({name: LIF(width, tau=tau) for name, width in widths.items()})
        self.query = SpikeLinear(features, 1)
        self.hidden = DenseLinear(memory + features, features)
        self.out = DenseLinear(features, features)
        self.wide = DenseLinear(features, wide)
        self.narrow = DenseLinear(wide, features)
        self.out_norm, self.narrow_norm = BatchNorm(features), BatchNorm(features)

    def forward(self, u: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """The stream after the block, for whole sequences [B, T, D], or packed [1, S, D] with `cu_seqlens`."""

        def fire(name: str, x: Tensor) -> Tensor:
            return self.neurons[name](self.norms[name](x), cu_seqlens=cu_seqlens)

        s = fire("input", u)
        m = fire("memory", self.memory(fire("query", self.query(s)), cu_seqlens=cu_seqlens))
        h = fire("hidden", self.hidden(torch.cat((m, s), -1)))
        r = u + self.out_norm(self.out(h))
        return r + self.narrow_norm(self.narrow(fire("wide", self.wide(fire("mixer", r)))))

    def count(self, name: str, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count the parts of the block, see `resofire.nn.counts`."""
        active: dict[str, float] = {}
        parts: list[Count] = []
        neurons: list[tuple[str, Any]] = list(self.neurons.items())
        for key, neuron in neurons:
            layer = f"{name}.neurons.{key}"
            active[key] = rate_of(rates, layer) * neuron.features
            parts.append(neuron.count(layer, steps))
        feeds = {
            "query": ("token linear", active["input"]), "hidden": ("token linear", active["memory"] + active["input"]),
            "out": ("token linear", active["hidden"]), "wide": ("channel linear", active["mixer"]),
            "narrow": ("channel linear", active["wide"]),
        }  # fmt: skip
        for key, (component, spikes) in feeds.items():
            parts.append(count_synapses(getattr(self, key), f"{name}.{key}", component, spikes, steps))
        parts.append(self.memory.count(f"{name}.memory", steps, active["query"]))
        if not fold_norm:
            norms: dict[str, Any] = {f"norms.{key}": norm for key, norm in self.norms.items()}
            norms |= {"out_norm": self.out_norm, "narrow_norm": self.narrow_norm}
            parts += [count_norm(f"{name}.{key}", norm.features, steps) for key, norm in norms.items()]
        return [*parts, *(count_residual(f"{name}.shortcut{i}", self.features, steps) for i in range(2))]


class LegendreMemory(nn.Module):
    """m of one channel q, [B, T, 1] to [B, T, order]; without parameters."""

    transition: Tensor
    drive: Tensor

    def __init__(self, order: int, window: float) -> None:
        super().__init__()
        require_count("LegendreMemory", "memory", order)
        if not window >= 1:
            raise ValueError(f"LegendreMemory: window must be at least 1, got {window!r}")
        self.order, self.window = order, window
        # Constants of the settings, made again when a network is loaded.
        for name, value in zip(("transition", "drive"), discretised(order, window), strict=True):
            self.register_buffer(name, torch.from_numpy(value), persistent=False)
        self._response: Tensor | None = None

    def forward(self, q: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        if q.shape[1] == 0:
            return q.expand(*q.shape[:-1], self.order)
        longest = q.shape[1] if cu_seqlens is None else int(cu_seqlens.diff().max())
        response = self.response(longest).to(q.device, q.dtype)
        return in_groups(lambda group: convolve(group, response[: group.shape[1]]), q, cu_seqlens)

    def response(self, length: int) -> Tensor:
        """Ā^k B̄ for k below `length`, [length, order], float64. The longest so far is kept."""
        if self._response is None or self._response.shape[0] < length:
            table, power = self.drive[None], self.transition
            while table.shape[0] < length:
                table, power = torch.cat((table, table @ power.T)), power @ power
            self._response = table
        return self._response[:length]

    def count(self, name: str, steps: float, active: float) -> Count:
        """Count Ā m as MACs and B̄ q, with q a spike, as additions."""
        size = self.order
        return Count(layer=name, component="state space", times=steps, mac=size**2, ac=active * size,
                     weights_read=NUMBER * (size**2 + active * size), state_read=NUMBER * size,
                     state_written=NUMBER * size, activations_written=NUMBER * size)  # fmt: skip


def discretised(order: int, window: float) -> tuple[np.ndarray, np.ndarray]:
    """Ā [order, order] and B̄ [order] of a Legendre memory, by zero-order hold with a time step of 1."""
    row, column = np.mgrid[:order, :order]
    scale = (2 * np.arange(order) + 1) / window
    a = scale[:, None] * np.where(row < column, -1.0, (-1.0) ** (row - column + 1))
    b = scale * (-1.0) ** np.arange(order)
    # One exponential gives both: exp([[A, B], [0, 0]]) = [[Ā, B̄], [0, 1]].
    joint = np.zeros((order + 1, order + 1))
    joint[:order, :order], joint[:order, order] = a, b
    exponential = torch.linalg.matrix_exp(torch.from_numpy(joint)).numpy()
    return exponential[:order, :order].copy(), exponential[:order, order].copy()
