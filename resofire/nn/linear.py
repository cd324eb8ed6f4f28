"""Linear layers with operators of their own: for spikes, for real values, and for the input of a network."""

import torch
from torch import Tensor, nn

from ..ops import spike_linear
from ..ops.checks import require_choice
from ..ops.dense_linear import dense_linear
from ..ops.narrow_linear import narrow_linear
from ..ops.registry import names
from .neuron import autocast_on


class InputLinear(nn.Linear):
    """The first layer, on real values: `nn.Linear`, run by `resofire.ops.narrow_linear`; same state dict."""

    def forward(self, x: Tensor) -> Tensor:
        if autocast_on(x) or self.bias is None:
            return super().forward(x)
        return narrow_linear(x, self.weight, self.bias)


class DenseLinear(nn.Linear):
    """A Linear on many real values: `nn.Linear`, run by `resofire.ops.dense_linear`; same state dict."""

    def forward(self, x: Tensor) -> Tensor:
        return dense_linear(x, self.weight, self.bias)


class SpikeLinear(nn.Linear):
    """A Linear whose input is spikes: `nn.Linear`, same initialisation and state dict, run by `ops.spike_linear`.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        bias: Whether it adds a bias.
        backend: "auto", "events" (computes active inputs only) or "reference" (dense).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, backend: str = "auto") -> None:
        super().__init__(in_features, out_features, bias)
        require_choice("SpikeLinear", "backend", backend, ("auto", *names("spike_linear")))
        self.backend = backend

    def forward(self, spikes: Tensor) -> Tensor:
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if autocast_on(spikes):
            # Autocast converts the arguments of nn.Linear, but not those of our operators.
            dtype = torch.get_autocast_dtype(spikes.device.type)
            spikes, weight = spikes.to(dtype), weight.to(dtype)
            bias = bias if bias is None else bias.to(dtype)
        return spike_linear(spikes, weight, bias, backend=self.backend)
