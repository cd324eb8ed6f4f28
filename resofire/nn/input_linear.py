"""The first layer of a network on real values, which are no spikes: it stays dense, and has few inputs as a rule."""

from torch import Tensor, nn

from ..ops.narrow_linear import narrow_linear
from .neuron import autocast_on


class InputLinear(nn.Linear):
    """`nn.Linear`, same initialisation and state dict; how it runs is said in `resofire.ops.narrow_linear`."""

    def forward(self, x: Tensor) -> Tensor:
        if autocast_on(x) or self.bias is None:
            return super().forward(x)
        return narrow_linear(x, self.weight, self.bias)
