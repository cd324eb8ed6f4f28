"""SpikingSSM: a LIF with hard reset behind the state space, trained through a surrogate dynamic network (SDN). S. Shen
et al., "SpikingSSMs: Learning Long Sequences with Sparse and Parallel Spiking State Space Models", AAAI 2025.

    U⁺ = U + GLU(W s + b)        v_t = β m_{t-1} + x_t        s_t = [v_t ≥ 1]        m_t = v_t (1 - s_t)

with x = SSM(norm(U)) / V, a trained threshold V in each channel (SpikingSSM-VT), and β = 1/8. The reset makes v a
recurrence that cannot be convolved. In training, a small convolution predicts β m_{t-1} from the last inputs:

    β m_{t-1} ≈ SDN(x)_t = w₂ · relu(W₁ x_{t-14…t} + b₁) + b₂        8 hidden channels

and s_t = [x_t + SDN(x)_t ≥ 1], where gradients flow through x_t only. In evaluation the LIF itself runs.

The original SDN is conv(relu(conv(conv(x)) + conv(x))). Its first two convolutions are linear and hence one, which is
what is trained here. `sdn.safetensors` holds the weights, made by `fit` on white noise as in the original. The GLU is
inferred from the published number of parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn import LIF
from ...nn.config import settings_of
from ...nn.counts import NUMBER, Count
from ...ops import Triangle
from ...ops.surrogate import spike
from ...ops.window_mlp import by_convolution, why_not_compiled, window_mlp
from .binary_s4d import count_spiking_glu
from .padded import in_groups
from .s4d import S4D, S4DConfig

BETA = 0.125
HIDDEN, WINDOW = 8, 15
WEIGHTS = Path(__file__).with_name("sdn.safetensors")


@dataclass(frozen=True)
class SpikingSSMConfig(S4DConfig):
    """The settings of a `SpikingSSM`."""

    sdn: bool = True
    """Train through the surrogate dynamic network; otherwise through the LIF itself."""

    def build(self, features: int) -> "SpikingSSM":
        return SpikingSSM(features, **settings_of(self))


class SpikingSSM(S4D):
    """One block of SpikingSSM; other arguments as in `S4D`.

    Args:
        features: Channels D of the stream.
        sdn: Train through the surrogate dynamic network; otherwise through the LIF itself.
        **settings: See `S4D`.
    """

    neuron_parameters = ("log_threshold",)

    def __init__(self, features: int, *, sdn: bool = True, **settings: Any) -> None:
        super().__init__(features, **settings)
        self.neuron = LIF(features, tau=1 / (1 - BETA), reset="hard", surrogate=Triangle(1.0))
        self.log_threshold = nn.Parameter(torch.zeros(features))
        self.sdn = SDN() if sdn else None

    def activate(self, y: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        x = y * torch.exp(-self.log_threshold)
        if self.sdn is None or not self.training or x.shape[1] == 0:
            return self.neuron(x, cu_seqlens=cu_seqlens)
        with torch.no_grad():
            rest = self.sdn(x, cu_seqlens)
        return self.neuron._report_spikes(spike(x + rest - 1, self.neuron.surrogate))

    def count_mixer(self, name: str, steps: float, rates: Mapping[str, float]) -> list[Count]:
        scale = Count(layer=f"{name}.threshold", component="temporal neuron", times=steps, multiply=self.features,
                      weights_read=NUMBER * self.features)  # fmt: skip
        return [scale, self.neuron.count(f"{name}.neuron", steps), *count_spiking_glu(self, name, steps, rates)]


class SDN(nn.Module):
    """The surrogate dynamic network: currents [B, T, N], or packed, to predictions of β m_{t-1}, without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        for name, value in safetensors.torch.load_file(WEIGHTS).items():
            self.register_buffer(name, value)

    @torch.no_grad()
    def forward(self, x: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        names = ("window", "window_bias", "read", "read_bias")
        weights = [self.get_buffer(name).to(x.dtype) for name in names]
        if why_not_compiled(x) is None:
            return window_mlp(x, *weights, cu_seqlens=cu_seqlens)
        return in_groups(lambda group: by_convolution(group, *weights), x, cu_seqlens)


def fit(steps: int = 3_000, seed: int = 0) -> dict[str, Tensor]:
    """Fit an SDN to a LIF that receives white noise; `sdn.safetensors` is its result.

    Args:
        steps: Steps of Adam on batches of 512 sequences of 48 time steps.
        seed: Of the noise and the initial weights.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = WINDOW**-0.5
    weights = {
        "window": scale * torch.randn(HIDDEN, WINDOW, generator=generator), "window_bias": torch.zeros(HIDDEN),
        "read": HIDDEN**-0.5 * torch.randn(HIDDEN, generator=generator), "read_bias": torch.zeros(1),
    }  # fmt: skip
    parameters = [value.requires_grad_() for value in weights.values()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        x = torch.randn(512, 48, 1, generator=generator)
        loss = F.mse_loss(by_convolution(x, **weights), carried(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return {name: value.detach() for name, value in weights.items()}


def carried(x: Tensor) -> Tensor:
    """What a LIF with hard reset carries into each step, β m_{t-1}, for currents [B, T, N]."""
    rest, rows = torch.zeros_like(x[:, 0]), []
    for now in x.unbind(1):
        rows.append(rest)
        v = rest + now
        rest = BETA * v * (v < 1)
    return torch.stack(rows, 1)
