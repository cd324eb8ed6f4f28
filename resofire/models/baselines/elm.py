"""ELM: the expressive leaky memory neuron. A. Spieler, N. Rahaman, G. Martius, B. Schölkopf, A. Levina, "The Expressive
Leaky Memory Neuron", ICLR 2024. Not spiking.

    s_t = κ_s s_{t-1} + relu(w) x_t                          synapses, one for each channel of x
    Δ_t = f(W₂ relu(W₁ [s_t, κ m_{t-1}] + b₁) + b₂)          f(z) = 1.7159 tanh(2z/3)
    m_t = κ m_{t-1} + λ (1 - κ) Δ_t                          d memories, κ = e^{-1/τ}
    U⁺ = U + W_y m_t + b_y                                   x = norm(U)

τ of each memory is trained between 1 and `longest` steps, initially evenly spaced in the logarithm. The original is one
such neuron with many memories. Here each block is one, with norm and shortcut, and blocks are stacked as in the other
networks.

The memories feed back through an MLP, which is a loop over time: nothing but the MLP is left in it. The synapses are a
linear recurrence, and their part of W₁ and the read-out are products over all time steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn import BatchNorm, Config
from ...nn.config import settings_of
from ...nn.counts import NUMBER, Count, count_dense, count_norm, count_residual
from ...nn.linear import DenseLinear
from ...ops.checks import require_count, state_dtype
from ...ops.convolution import convolve, powers
from ...ops.dense_linear import dense_linear
from ...ops.leaky_memory import Weights, leaky_memory, why_not_compiled
from ...ops.state_space import state_space, why_not_scan
from .padded import in_groups


@dataclass(frozen=True)
class ELMConfig(Config):
    """The settings of an `ELM`."""

    memory: int | None = None
    """Memories d; None: as many as channels."""
    hidden: int | None = None
    """Hidden units of the MLP; None: twice the memories."""
    gain: float = 5.0
    """λ, how far the MLP may move a memory."""
    longest: float = 1000.0
    """Longest time constant of a memory, in time steps."""
    tau: float = 5.0
    """Time constant of the synapses, not trained."""

    def build(self, features: int) -> "ELM":
        return ELM(features, **settings_of(self))


class ELM(nn.Module):
    """One block with an ELM neuron; the equations are at the top of this file.

    Args:
        features: Channels D of the stream.
        memory: Memories d; None: as many as channels.
        hidden: Hidden units of the MLP; None: twice the memories.
        gain: λ, how far the MLP may move a memory.
        longest: Longest time constant of a memory, in time steps; above 1.
        tau: Time constant of the synapses, not trained.
    """

    neuron_parameters = ("logit_tau", "weight")

    def __init__(
        self,
        features: int,
        *,
        memory: int | None = None,
        hidden: int | None = None,
        gain: float = 5.0,
        longest: float = 1000.0,
        tau: float = 5.0,
    ) -> None:
        super().__init__()
        size = features if memory is None else memory
        width = 2 * size if hidden is None else hidden
        for name, value in (("features", features), ("memory", size), ("hidden", width)):
            require_count("ELM", name, value)
        for name, number, least in (("longest", longest, 1.0), ("tau", tau, 0.0), ("gain", gain, 0.0)):
            if not number > least:
                raise ValueError(f"ELM: {name} must be above {least:g}, got {number!r}")
        self.features, self.size, self.gain, self.longest, self.tau = features, size, gain, longest, tau
        self.norm = BatchNorm(features)
        self.weight = nn.Parameter(torch.full((features,), 0.5))
        # The ends are infinite logits, so they are left out.
        share = (longest ** ((torch.arange(size) + 0.5) / size) - 1) / (longest - 1)
        self.logit_tau = nn.Parameter(torch.logit(share))
        self.into = nn.Linear(features + size, width)
        self.update = nn.Linear(width, size)
        self.out = DenseLinear(size, features)

    def forward(self, u: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """The stream after the block, for whole sequences [B, T, D], or packed [1, S, D] with `cu_seqlens`."""
        if u.shape[1] == 0:
            return u
        seen, _ = self.into.weight.split((self.features, self.size), 1)
        drive = dense_linear(self.synapses(self.norm(u), cu_seqlens), seen, self.into.bias)
        weights = self.loop_weights()
        if why_not_compiled(drive) is None:
            return u + self.out(leaky_memory(drive, weights, cu_seqlens))
        return u + self.out(in_groups(lambda x: memories(x, weights), drive, cu_seqlens, together=True))

    def synapses(self, x: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        """s_t of all steps, [B, T, D]."""
        x, decay = F.relu(self.weight) * x, math.exp(-1 / self.tau)
        if why_not_scan(x) is not None:
            table = powers(torch.full((1,), decay, dtype=x.dtype, device=x.device), x.shape[1])
            return in_groups(lambda group: convolve(group, table[: group.shape[1]]), x, cu_seqlens)
        # A state space with one real state.
        decays, ones = (torch.zeros(2, 1, x.shape[-1], dtype=state_dtype(x)) for _ in range(2))
        decays[0], ones[0] = decay, 1.0
        return state_space(x, decays, ones, torch.zeros_like(ones[0, 0]), cu_seqlens=cu_seqlens)[0]

    def loop_weights(self) -> Weights:
        """What the loop over time multiplies with."""
        _, fed_back = self.into.weight.split((self.features, self.size), 1)
        kappa = torch.exp(-1 / (1 + (self.longest - 1) * torch.sigmoid(self.logit_tau)))
        # f's inner factor is part of the weights here, its outer one of the gain.
        update, bias = self.update.weight * (2 / 3), self.update.bias * (2 / 3)
        return Weights(kappa, fed_back, update, bias, 1.7159 * self.gain * (1 - kappa))

    def count(self, name: str, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count the parts of the block, see `resofire.nn.counts`."""
        width = self.features
        synapses = Count(layer=f"{name}.synapses", component="state space", times=steps, multiply=width, mac=width,
                         weights_read=NUMBER * width, state_read=NUMBER * width, state_written=NUMBER * width,
                         activations_read=NUMBER * width, activations_written=NUMBER * width)  # fmt: skip
        # relu as a comparison, tanh as a nonlinear function, κ m and the MAC with λ (1 - κ).
        memory = Count(layer=f"{name}.memory", component="temporal neuron", times=steps, multiply=self.size,
                       mac=self.size, compare=self.into.out_features, nonlinear=self.size,
                       weights_read=NUMBER * 2 * self.size, state_read=NUMBER * self.size,
                       state_written=NUMBER * self.size)  # fmt: skip
        norm = [] if fold_norm else [count_norm(f"{name}.norm", width, steps)]
        return [
            *norm,
            synapses,
            count_dense(self.into, f"{name}.into", "token linear", steps),
            count_dense(self.update, f"{name}.update", "token linear", steps),
            memory,
            count_dense(self.out, f"{name}.out", "channel linear", steps),
            count_residual(f"{name}.shortcut", width, steps),
        ]


def memories(drive: Tensor, weights: Weights) -> Tensor:
    """m_t of all steps, from W₁'s part of the synapses [B, T, hidden] to [B, T, d], as a loop under autograd."""
    kept, rows = drive.new_zeros(drive.shape[0], weights.kappa.shape[0]), []
    for now in drive.unbind(1):
        kept = weights.kappa * kept
        hidden = torch.relu(torch.addmm(now, kept, weights.feedback.T))
        kept = torch.addcmul(kept, weights.gain, torch.tanh(torch.addmm(weights.bias, hidden, weights.update.T)))
        rows.append(kept)
    return torch.stack(rows, 1)
