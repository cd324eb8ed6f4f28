"""The Transformer encoder: A. Vaswani et al., "Attention is all you need", NeurIPS 2017. Not spiking.

    R = U + W_o attention(N U)        U⁺ = R + W₂ GELU(W₁ N R + b₁) + b₂        W₁ [4D, D]

Differences from the original: the layer norm N comes first, as in later Transformers; GELU instead of ReLU. Positions
are rotations of queries and keys in every block (J. Su et al., "RoFormer", 2021) instead of sinusoids added once to the
input.

Attention is PyTorch's `scaled_dot_product_attention`, for packed sequences one call for each: nothing is padded.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn import Config
from ...nn.config import settings_of
from ...nn.counts import NUMBER, Count, count_dense, count_residual
from ...nn.linear import DenseLinear
from ...nn.sdtcm import require_share
from ...ops.checks import require_count
from .s4d import count_gelu, dropped

# Slowest rotation, in radians per step: 1 / BASE.
BASE = 10_000.0


@dataclass(frozen=True)
class TransformerConfig(Config):
    """The settings of a `Transformer`."""

    heads: int = 4
    """Heads of the attention; the channels must be a multiple of twice their number."""
    wider: int = 4
    """Width of the MLP, as a multiple of the channels."""
    bidirectional: bool = False
    """Attend to the whole sequence instead of the past."""
    dropout: float = 0.0
    """Share of the values of both branches that are dropped in training."""

    def build(self, features: int) -> "Transformer":
        return Transformer(features, **settings_of(self))


class Transformer(nn.Module):
    """One Transformer block; the equation is at the top of this file.

    Args:
        features: Channels D of the stream.
        heads: Heads of the attention; D must be a multiple of twice their number.
        wider: Width of the MLP, as a multiple of D.
        bidirectional: Attend to the whole sequence instead of the past.
        dropout: Share of the values of both branches that are dropped in training.
    """

    def __init__(
        self, features: int, *, heads: int = 4, wider: int = 4, bidirectional: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        for name, value in (("features", features), ("heads", heads), ("wider", wider)):
            require_count("Transformer", name, value)
        if features % (2 * heads):
            raise ValueError(
                f"Transformer: features must be a multiple of {2 * heads}, two for each of the {heads} heads, "
                f"got {features}"
            )
        require_share("Transformer", "dropout", dropout)
        self.features, self.heads, self.bidirectional, self.dropout = features, heads, bidirectional, dropout
        self.norm, self.mlp_norm = nn.LayerNorm(features), nn.LayerNorm(features)
        self.project = DenseLinear(features, 3 * features)
        self.out = DenseLinear(features, features)
        self.wide = DenseLinear(features, wider * features)
        self.narrow = DenseLinear(wider * features, features)

    def forward(self, u: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """The stream after the block, for whole sequences [B, T, D], or packed [1, S, D] with `cu_seqlens`."""
        if u.shape[1] == 0:
            return u
        projected = self.project(self.norm(u))
        if cu_seqlens is None:
            mixed = self.attend(projected)
        else:
            # Not slices: the gradient of each would be as large as the whole.
            pieces = projected.split(cu_seqlens.diff().tolist(), 1)
            mixed = torch.cat([self.attend(piece) for piece in pieces if piece.shape[1]], 1)
        r = u + self._drop(self.out(mixed))
        return r + self._drop(self.narrow(F.gelu(self.wide(self.mlp_norm(r)))))

    def attend(self, projected: Tensor) -> Tensor:
        """Attention of whole sequences, from queries, keys and values [B, T, 3D] to [B, T, D]."""
        heads = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys, values = rotated(heads[0]), rotated(heads[1]), heads[2]
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=not self.bidirectional)
        return mixed.transpose(1, 2).flatten(-2)

    def _drop(self, x: Tensor) -> Tensor:
        return dropped(x, self.dropout, self.training)

    def count(self, name: str, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count the parts of the block for one sequence of `steps`, see `resofire.nn.counts`.

        A layer norm depends on its input and cannot be folded.
        """
        width, size = self.features, NUMBER * self.features
        context = steps if self.bidirectional else (steps + 1) / 2

        def part(layer: str, component: str, **counted: float) -> Count:
            return Count(layer=f"{name}.{layer}", component=component, times=steps, **counted)

        norms = [
            # Mean D, centre D and shift D additions, squares D MACs, scale 2D products, a root.
            part(layer, "norm", mac=width, add=3 * width, multiply=2 * width, nonlinear=1, weights_read=2 * size,
                 activations_read=size, activations_written=size)
            for layer in ("norm", "mlp_norm")
        ]  # fmt: skip
        return [
            *norms,
            count_dense(self.project, f"{name}.project", "token linear", steps),
            # Queries and keys: D/2 pairs each, 4 products and 2 additions.
            part("rotation", "attention", multiply=4 * width, add=2 * width, weights_read=size,
                 activations_read=2 * size, activations_written=2 * size),
            # All keys and values so far are read, one of each is written.
            part("attention", "attention", mac=2 * context * width, state_read=2 * context * size,
                 state_written=2 * size, activations_read=size, activations_written=size),
            # Maximum, difference, exponential and sum of each weight; one reciprocal that scales the output.
            part("softmax", "softmax", compare=self.heads * context, add=2 * self.heads * context, multiply=width,
                 nonlinear=self.heads * (context + 1), activations_read=NUMBER * self.heads * context,
                 activations_written=NUMBER * self.heads * context),
            count_dense(self.out, f"{name}.out", "token linear", steps),
            count_dense(self.wide, f"{name}.wide", "channel linear", steps),
            count_gelu(f"{name}.activation", self.wide.out_features, steps),
            count_dense(self.narrow, f"{name}.narrow", "channel linear", steps),
            *(count_residual(f"{name}.shortcut{i}", width, steps) for i in range(2)),
        ]  # fmt: skip


def rotated(x: Tensor) -> Tensor:
    """Rotate pairs of channels of [B, heads, T, E] by an angle that grows with the time step, E even."""
    half = x.shape[-1] // 2
    speeds = BASE ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float64)[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)
