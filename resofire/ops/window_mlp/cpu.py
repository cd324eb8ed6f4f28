"""The MLP on the CPU: its weights as the kernel reads them, plan and threads."""

import torch
from torch import Tensor

from ..neuron_scan import simd
from ..neuron_scan.cpu import flat, plan_of, run
from . import OWNER
from .kernels import UNITS, forward_kernel


def forward(x: Tensor, weights: tuple[Tensor, Tensor, Tensor, Tensor], cu_seqlens: Tensor | None) -> Tensor:
    """y of all steps."""
    window, window_bias, read, read_bias = weights
    y = torch.empty_like(x)
    plan, shares = plan_of(OWNER, x, cu_seqlens)
    if x.numel():
        # A unit for each row: its window, oldest input first, its bias, its weight in y.
        rows = x.new_zeros((-(-window.shape[0] // UNITS) * UNITS, window.shape[1] + 2))
        rows[: window.shape[0]] = torch.cat((window, window_bias[:, None], read[:, None]), 1)
        run(
            forward_kernel(simd.BYTES // x.element_size()), plan, shares, x.shape[2], *flat(x), *flat(y), rows.numpy(),
            read_bias.numpy()[0],
        )  # fmt: skip
    return y
