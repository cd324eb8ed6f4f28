"""The state space on the CPU: memory, plan and threads around the kernels."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..neuron_scan import padded, simd
from ..neuron_scan.cpu import flat, plan_of, run
from . import OWNER, checkpoint_shape, even
from .kernels import backward_kernel, forward_kernel


class Inputs(NamedTuple):
    """The tensors that both passes read."""

    x: Tensor  # [B, T, N], or [1, S, N] when packed
    decay: Tensor  # [2, P, N]
    weights: Tensor  # [directions, 2, P, N]
    through: Tensor  # [N]
    cu_seqlens: Tensor | None

    @property
    def rows(self) -> tuple[int, int]:
        """Complex states and lanes of the kernels' memory."""
        return even(self.decay.shape[1]), padded(self.x.shape[2])

    @property
    def coefficients(self) -> Tensor:
        """Of each direction [4, P, lanes], padded."""
        decays = self.decay.expand_as(self.weights)
        return _padded(torch.cat((decays, self.weights), 1), *self.rows)


def forward(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y, the state after the last step of the first direction, and checkpoints."""
    x, cu_seqlens = inputs.x, inputs.cu_seqlens
    directions = inputs.weights.shape[0]
    plan, shares = plan_of(OWNER, x, cu_seqlens)
    y = torch.empty_like(x)
    kept = x.new_zeros(checkpoint_shape(x, inputs.weights, cu_seqlens))
    running = _padded(state.permute(2, 0, 1, 3), *inputs.rows)
    if x.numel():
        width = simd.BYTES // x.element_size()
        coefficients, through = inputs.coefficients, _padded(inputs.through[None], 1, inputs.rows[1])
        for direction in range(directions):
            start = running if direction == 0 else torch.zeros_like(running)
            run(
                forward_kernel(width, direction == 1), plan, shares, x.shape[2], *flat(x), *flat(y),
                _array(coefficients[direction]), _array(through), *inputs.rows, _array(start), _array(kept[direction]),
            )  # fmt: skip
    return y, _unpadded(running, inputs).permute(1, 2, 0, 3).contiguous(), kept


def backward(
    inputs: Inputs, kept: Tensor, grad_y: Tensor, grad_state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, decay, weights, through and the state before the first step."""
    x, decay, weights, through, cu_seqlens = inputs
    directions, (pairs, pitch) = weights.shape[0], inputs.rows
    plan, shares = plan_of(OWNER, x, cu_seqlens)
    shape = (2, decay.shape[1], len(plan), x.shape[2])
    after = x.new_zeros(shape) if grad_state is None else grad_state
    running = _padded(after.permute(2, 0, 1, 3), pairs, pitch)
    grad_x = torch.empty_like(x)
    sums, through_sums = np.zeros((directions, len(plan), 4, pairs, pitch)), np.zeros((len(plan), pitch))
    if x.numel():
        width = simd.BYTES // x.element_size()
        coefficients, through_row = inputs.coefficients, _padded(through[None], 1, pitch)
        for direction in range(directions):
            end = running if direction == 0 else torch.zeros_like(running)
            run(
                backward_kernel(width, direction == 1), plan, shares, x.shape[2], *flat(grad_y), *flat(x),
                *flat(grad_x), _array(coefficients[direction]), _array(through_row), pairs, pitch,
                _array(kept[direction]), _array(end), sums[direction].reshape(-1), through_sums.reshape(-1),
            )  # fmt: skip
    totals = _unpadded(torch.from_numpy(sums.sum(1)), inputs)
    grad_decay, grad_weights = totals[:, :2].sum(0).to(x.dtype), totals[:, 2:].to(x.dtype).contiguous()
    grad_through = torch.from_numpy(through_sums.sum(0)[: x.shape[2]].copy()).to(x.dtype)
    before = _unpadded(running, inputs).permute(1, 2, 0, 3).contiguous()
    return grad_x, grad_decay, grad_weights, grad_through, before


def _padded(rows: Tensor, pairs: int, pitch: int) -> Tensor:
    """[..., P, N] as [..., pairs, pitch], padded with zeros: a state without weight."""
    wide = rows.new_zeros((*rows.shape[:-2], pairs, pitch))
    wide[..., : rows.shape[-2], : rows.shape[-1]] = rows
    return wide


def _unpadded(rows: Tensor, inputs: Inputs) -> Tensor:
    return rows[..., : inputs.decay.shape[1], : inputs.x.shape[2]]


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().reshape(-1).numpy()
