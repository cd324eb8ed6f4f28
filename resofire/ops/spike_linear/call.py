"""A checked call of `spike_linear`, with its spikes packed to bits on first use."""

import torch
from torch import Tensor

from ..checks import require_finite, require_floating


class LinearCall:
    """spikes [..., in], weight [out, in], bias [out] or None."""

    def __init__(self, spikes: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.spikes, self.weight, self.bias = spikes, weight, bias
        self._packed: tuple[Tensor, Tensor] | None = None

    def packed(self) -> tuple[Tensor, Tensor]:
        """The spikes as bits [M, words], and their amplitude: 0 without spikes, NaN if this is not a spike train."""
        if self._packed is None:
            self._packed = torch.ops.resofire.pack_spikes(self.spikes.detach())
        return self._packed

    def density(self) -> float:
        """The fraction of active inputs."""
        return float(torch.ops.resofire.count_bits(self.packed()[0])) / max(1, self.spikes.numel())


def prepare(spikes: Tensor, weight: Tensor, bias: Tensor | None = None) -> LinearCall:
    """Check the arguments of `spike_linear`."""
    op = "spike_linear"
    require_floating(op, "spikes", spikes)
    require_floating(op, "weight", weight)
    if weight.dim() != 2:
        raise ValueError(f"{op}: weight must have shape [out, in], got {list(weight.shape)}")
    if spikes.dim() < 1 or spikes.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"{op}: spikes must have shape [..., {weight.shape[1]}] to go with weight {list(weight.shape)}, "
            f"got {list(spikes.shape)}"
        )
    if bias is not None:
        require_floating(op, "bias", bias)
        if bias.shape != weight.shape[:1]:
            raise ValueError(f"{op}: bias must have shape [{weight.shape[0]}], got {list(bias.shape)}")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and (value.dtype != spikes.dtype or value.device != spikes.device):
            raise TypeError(
                f"{op}: {name} must be {spikes.dtype} on {spikes.device} like spikes, "
                f"got {value.dtype} on {value.device}"
            )
        if value is not None:
            require_finite(op, name, value)
    require_finite(op, "spikes", spikes)
    return LinearCall(spikes, weight, bias)
