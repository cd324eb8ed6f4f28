"""S4D: a diagonal state space in each block, GELU, and a gated Linear. Not spiking.

    U⁺ = U + drop(GLU(W GELU(SSM(norm(U))) + b))        W [2D, D],  GLU(a, g) = a σ(g)

The equations of SSM are in `state_space`; A. Gu et al., NeurIPS 2022. Differences from the original: batch norm before
the block in every task (there, a choice of each task), and dropout of single values instead of whole channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn import BatchNorm, Config
from ...nn.config import settings_of
from ...nn.counts import NUMBER, Count, count_dense, count_norm, count_residual
from ...nn.linear import DenseLinear
from ...nn.sdtcm import require_share
from .state_space import StateSpace

# Steps in which `dropped` rounds a share.
LEVELS = 1 << 16


@dataclass(frozen=True)
class S4DConfig(Config):
    """The settings of an `S4D`."""

    states: int = 64
    """Real numbers in the state of a channel."""
    init: str = "legs"
    """Initial state matrix: legs or lin."""
    delta: tuple[float, float] = (1e-3, 1e-1)
    """Range of the initial Δ."""
    bidirectional: bool = False
    """Also read the reversed sequence."""
    dropout: float = 0.0
    """Share of the values of the branch that are dropped in training."""

    def build(self, features: int) -> "S4D":
        return S4D(features, **settings_of(self))


class S4D(nn.Module):
    """One S4D block; the equation is at the top of this file. The spiking blocks derive from it.

    Args:
        features: Channels D of the stream.
        states: Real numbers in the state of a channel.
        init: Initial state matrix, "legs" or "lin".
        delta: Range of the initial Δ.
        bidirectional: Also read the reversed sequence.
        dropout: Share of the values of the branch that are dropped in training.
    """

    mixer: nn.Linear

    def __init__(
        self,
        features: int,
        *,
        states: int = 64,
        init: str = "legs",
        delta: tuple[float, float] = (1e-3, 1e-1),
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_share(type(self).__name__, "dropout", dropout)
        self.features, self.dropout = features, dropout
        self.norm = BatchNorm(features)
        self.space = StateSpace(features, states=states, init=init, delta=delta, bidirectional=bidirectional)
        self.mixer = DenseLinear(features, 2 * features)

    def forward(self, u: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """The stream after the block, for whole sequences [B, T, D], or packed [1, S, D] with `cu_seqlens`."""
        y = self.activate(self.space(self.norm(u), cu_seqlens=cu_seqlens), cu_seqlens)
        return u + dropped(self.mix(y), self.dropout, self.training)

    def activate(self, y: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        """What the channel mixer receives of the state space's output."""
        return F.gelu(y)

    def mix(self, y: Tensor) -> Tensor:
        """The channel mixer."""
        value, gate = self.mixer(y).chunk(2, -1)
        # As F.glu, whose backward pass takes the sigmoid of half a row at a time.
        return value * torch.sigmoid(gate.contiguous())

    def count(self, name: str, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count the parts of the block, see `resofire.nn.counts`."""
        norm = [] if fold_norm else [count_norm(f"{name}.norm", self.features, steps)]
        return [
            *norm,
            *self.space.count(f"{name}.space", steps),
            *self.count_mixer(name, steps, rates),
            count_residual(f"{name}.shortcut", self.features, steps),
        ]

    def count_mixer(self, name: str, steps: float, rates: Mapping[str, float]) -> list[Count]:
        """Count `activate` and `mix`."""
        return [
            count_gelu(f"{name}.activation", self.features, steps),
            count_dense(self.mixer, f"{name}.mixer", "channel linear", steps),
            count_glu(f"{name}.gate", self.features, steps),
        ]


def dropped(x: Tensor, share: float, training: bool) -> Tensor:
    """Drop a share of the values in training and scale up the others.

    torch draws each value of a mask from a Bernoulli distribution of its own, which takes longer than the layer around
    it. On a CPU a quarter of a random 64-bit integer decides: the share is rounded to 1/65536, and what remains is
    scaled by the rounded one, so that its mean is exact.
    """
    limit = round(share * LEVELS)
    if not training or x.device.type != "cpu" or torch.compiler.is_compiling() or limit in (0, LEVELS):
        return F.dropout(x, share, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * ((draws >= limit - LEVELS // 2).to(x.dtype) * (LEVELS / (LEVELS - limit)))


def count_gelu(name: str, features: int, times: float) -> Count:
    """Count one nonlinear function per channel."""
    return Count(layer=name, component="gate", times=times, nonlinear=features, activations_read=NUMBER * features,
                 activations_written=NUMBER * features)  # fmt: skip


def count_glu(name: str, features: int, times: float) -> Count:
    """Count a gated linear unit: a sigmoid and a product per channel."""
    return Count(layer=name, component="gate", times=times, nonlinear=features, multiply=features,
                 activations_read=NUMBER * 2 * features, activations_written=NUMBER * features)  # fmt: skip
