"""A Linear whose input is spikes, so that only the active inputs need to be worked on."""

import torch
from torch import Tensor, nn

from ..ops import spike_linear
from ..ops.checks import require_choice
from ..ops.registry import names
from .neuron import autocast_on


class SpikeLinear(nn.Linear):
    """`nn.Linear`, same initialisation and state dict; how it runs is said in `resofire.ops.spike_linear`."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, backend: str = "auto") -> None:
        super().__init__(in_features, out_features, bias)
        require_choice("SpikeLinear", "backend", backend, ("auto", *names("spike_linear")))
        self.backend = backend

    def forward(self, spikes: Tensor) -> Tensor:
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if autocast_on(spikes):
            # What autocast does to a Linear it does not do to an operator of ours.
            dtype = torch.get_autocast_dtype(spikes.device.type)
            spikes, weight = spikes.to(dtype), weight.to(dtype)
            bias = bias if bias is None else bias.to(dtype)
        return spike_linear(spikes, weight, bias, backend=self.backend)
