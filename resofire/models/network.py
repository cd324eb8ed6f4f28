"""The base class of networks, with the spike-rate regulariser, and checks of their input."""

import torch
from torch import Tensor

from ..nn import fire_rates
from ..nn.neuron import autocast_on
from ..nn.sync import Synchronised, summed_rates
from ..ops.checks import state_dtype
from .config import NetworkConfig
from .sequences import is_integer


class Network(Synchronised):
    """A network made from a config, called as model(x, *, lengths=None, cu_seqlens=None) -> logits."""

    config: NetworkConfig

    def penalised(
        self, x: Tensor, *, lengths: Tensor | None = None, cu_seqlens: Tensor | None = None
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The logits, a penalty to add to the loss, and the fire rate of each neuron layer by its name.

        With `rate_target`: rate_weight · Σ (rate - rate_target)² over the neuron layers, temporal and spatial ones
        alike; it pulls every layer up or down to the target.

        With `rate_limit`: rate_weight · max(0, mean / rate_limit - 1)², where mean is that of the layers' rates. It
        leaves the division of the spikes among the layers to training, and vanishes below the limit.

        With neither it is zero. Gradients flow through the surrogates. In training on several processes
        (`nn.synchronise`) the rates are those of the whole batch.

        Args:
            x: As in `forward`, as are the others.
            lengths: See `x`.
            cu_seqlens: See `x`.
        """
        target, limit, weight = self.config.rate_target, self.config.rate_limit, self.config.rate_weight
        with fire_rates(self, gradient=target is not None or limit is not None) as watched:
            logits = self(x, lengths=lengths, cu_seqlens=cu_seqlens)
        rates = summed_rates(watched, self.group) if self.group and self.training else watched.tensors()
        penalty = torch.zeros((), dtype=torch.float64, device=logits.device)
        if target is not None:
            penalty = penalty + weight * sum((rate - target) ** 2 for rate in rates.values())
        if limit is not None and rates:
            mean = torch.stack(list(rates.values())).mean()
            penalty = penalty + weight * (mean / limit - 1).clamp(min=0) ** 2
        return logits, penalty.to(state_dtype(logits)), {name: rate.detach() for name, rate in rates.items()}


def require_values(owner: str, x: Tensor, dims: str, inputs: int, like: Tensor) -> None:
    """Real-valued input of shape [dims, inputs], in the type of the weights it meets."""
    shape = f"[{dims}, {inputs}]"
    _require_shape(owner, x, shape)
    if x.shape[-1] != inputs:
        raise ValueError(f"{owner}: x must have shape {shape}, got {list(x.shape)}")
    if x.dtype != like.dtype and not (x.is_floating_point() and autocast_on(x)):
        raise TypeError(f"{owner}: x must be {_name(like.dtype)} like the weights, got {_name(x.dtype)}")


def require_tokens(owner: str, x: Tensor, dims: str) -> None:
    """Integers of shape [dims]; `require_vocabulary` looks at their values."""
    _require_shape(owner, x, f"[{dims}]")
    if not is_integer(x):
        raise TypeError(f"{owner}: x must hold tokens, which are integers, got {_name(x.dtype)}")


def require_vocabulary(owner: str, tokens: Tensor, vocabulary: int) -> None:
    """Looks at values that lie in the CPU's memory; to read them back from a GPU would stall its stream."""
    if tokens.device.type != "cpu" or torch.compiler.is_compiling() or tokens.numel() == 0:
        return
    for extreme in torch.aminmax(tokens.long()):
        if not 0 <= int(extreme) < vocabulary:
            raise ValueError(f"{owner}: x must hold tokens from 0 to {vocabulary - 1}, got {int(extreme)}")


def _require_shape(owner: str, x: Tensor, shape: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{owner}: x must be a tensor {shape}, got {type(x).__name__}")
    if x.dim() != len(shape.split(",")):
        raise ValueError(f"{owner}: x must have shape {shape}, got {list(x.shape)}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
