"""Batch norm over time steps: each position in the leading dimensions is one sample of every channel."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import moments
from ..ops.checks import require_count
from .neuron import in_full
from .sync import Synchronised, gathered


class BatchNorm(Synchronised):
    """Batch norm of [..., features] over all positions; names in the state dict are those of `nn.BatchNorm1d`.

    Padding would count as time steps, so pass sequences of different lengths packed. An empty batch is returned as it
    is and leaves the running statistics unchanged. After `synchronise`, training takes statistics over the time steps
    of all processes; processes may have different numbers of steps, or none.

    Args:
        features: Number of channels.
        eps: Added to the variance.
        momentum: Weight of a batch in the running statistics.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, features: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        require_count("BatchNorm", "features", features)
        if not eps > 0:
            raise ValueError(f"BatchNorm: eps must be positive, got {eps!r}")
        if not 0 <= momentum <= 1:
            raise ValueError(f"BatchNorm: momentum must be from 0 to 1, got {momentum!r}")
        self.features, self.eps, self.momentum = features, eps, momentum
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and shift, each [features], that the norm applies in evaluation, from the running statistics."""
        scale = in_full(self.weight) * torch.rsqrt(in_full(self.running_var) + self.eps)
        return scale, in_full(self.bias) - in_full(self.running_mean) * scale

    def statistics(self, x: Tensor, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and 1 / √(variance + eps) with which `forward` normalises x, each [features], without gradient.

        In training they are computed from x [B, T, features], and the running statistics are updated."""
        if not self._uses_batch_statistics(x):
            return in_full(self.running_mean), torch.rsqrt(in_full(self.running_var) + self.eps)
        with torch.no_grad():
            mean, var = self._update_statistics(x, *moments(x, cu_seqlens), _lengths(x, cu_seqlens))
            return mean, torch.rsqrt(var + self.eps)

    def pooled(self, x: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        """The mean of `forward(x)` over each sequence of x [B, T, features]; zeros for an empty sequence.

        The norm is the same affine map at all time steps, so it is applied after the mean: one pass over x, no copy."""
        means, spread = moments(x, cu_seqlens)
        lengths = _lengths(x, cu_seqlens)
        if self._uses_batch_statistics(x):
            mean, var = self._update_statistics(x, means, spread, lengths)
            normed = (means - mean) * (in_full(self.weight) * torch.rsqrt(var + self.eps)) + in_full(self.bias)
        else:
            scale, shift = self.affine()
            normed = means * scale + shift
        return torch.where(lengths > 0, normed, 0).to(x.dtype)

    def _update_statistics(self, x: Tensor, means: Tensor, spread: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Compute mean and variance of x from its moments, and update the running statistics."""
        if self.group:
            return self._update_statistics_synchronised(x, means, spread, lengths)
        steps = x.shape[0] * x.shape[1]
        self._require_steps(steps)
        mean, var = (means * lengths).sum(0) / steps, spread / steps
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((var * (steps / (steps - 1))).to(self.running_var.dtype), self.momentum)
        return mean, var

    def _update_statistics_synchronised(
        self, x: Tensor, means: Tensor, spread: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`_update_statistics` over all processes. The spreads, each about its own mean, are added by Chan's formula.

        The number of all time steps stays a tensor: to read it back from a GPU would stall its stream."""
        own = x.shape[0] * x.shape[1]
        mean = (means.double() * lengths).sum(0) / max(1, own)
        rows = gathered(torch.cat((mean.new_full((1,), own), mean, spread.double())), self.group)
        each, all_means, spreads = rows.split((1, self.features, self.features), 1)
        steps = each.detach().sum()
        if steps.device.type == "cpu" and not torch.compiler.is_compiling() and steps:
            self._require_steps(int(steps))
        divisor = steps.clamp(min=1)
        mean = (all_means * each).sum(0) / divisor
        total = (spreads + each * (all_means - mean) ** 2).sum(0)
        with torch.no_grad():
            counted = steps > 0
            self.num_batches_tracked.add_(counted)
            for running, now in ((self.running_mean, mean), (self.running_var, total / (steps - 1).clamp(min=1))):
                running.lerp_(now.to(running.dtype), counted.to(running.dtype) * self.momentum)
        return mean.to(means.dtype), (total / divisor).to(means.dtype)

    def _uses_batch_statistics(self, x: Tensor) -> bool:
        """Whether x is normalised by batch statistics. Synchronised, an empty x must take part in theirs."""
        return self.training and (x.numel() > 0 or self.group != "")

    def _require_steps(self, steps: int) -> None:
        if steps < 2:
            raise ValueError(f"BatchNorm: training needs at least two time steps in a batch, got {steps}")

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 0 or x.shape[-1] != self.features:
            raise ValueError(f"BatchNorm: x must have shape [..., {self.features}], got {list(x.shape)}")
        if x.numel() == 0 and not self._uses_batch_statistics(x):
            return x
        if not self.training:
            # Two roundings, whatever the shape: a step and a whole sequence get the same bits.
            scale, shift = self.affine()
            return (x * scale + shift).to(x.dtype)
        if self.group:
            return self._forward_synchronised(x)
        steps = x.numel() // self.features
        self._require_steps(steps)
        self.num_batches_tracked.add_(1)
        out = F.batch_norm(
            x.reshape(steps, self.features), self.running_mean, self.running_var, self.weight, self.bias,
            training=True, momentum=self.momentum, eps=self.eps,
        )  # fmt: skip
        return out.view(x.shape)

    def _forward_synchronised(self, x: Tensor) -> Tensor:
        rows = x.reshape(1, -1, self.features)
        mean, var = self._update_statistics(rows, *moments(rows), _lengths(rows, None))
        scale = in_full(self.weight) * torch.rsqrt(var + self.eps)
        return torch.addcmul(in_full(self.bias), rows - mean, scale).to(x.dtype).view(x.shape)

    def require_running(self, op: str) -> None:
        """Raises while training: a stream has no batch to take statistics from."""
        if self.training:
            raise RuntimeError(
                f"{op}: batch statistics cannot be streamed; call .eval() to use the running statistics of the norm"
            )

    def extra_repr(self) -> str:
        return f"{self.features}, eps={self.eps:g}, momentum={self.momentum:g}"


def _lengths(x: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """The lengths of the sequences in x, [B, 1]."""
    if cu_seqlens is None:
        return torch.full((x.shape[0], 1), x.shape[1], device=x.device)
    return cu_seqlens.long().diff()[:, None]
