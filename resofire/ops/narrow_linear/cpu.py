"""The narrow layer on the CPU: spans of time steps in parallel, their sums added in a fixed order in float64."""

import numpy as np
import torch
from torch import Tensor

from ..neuron_scan import simd
from ..neuron_scan.cpu import past_cache
from ..neuron_scan.threads import share_out
from ..spike_linear.events import padded_row, shares
from ..spike_linear.kernels import GROUP
from .kernels import gradient_kernel, linear_kernel


def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    columns, inputs = weight.shape
    out = x.new_empty((*x.shape[:-1], columns))
    threads = torch.get_num_threads()
    kernel = linear_kernel(simd.BYTES // x.element_size())
    rows = np.concatenate([padded_row(row, x, columns) for row in (bias, *weight.t())])
    rest = (x.contiguous().view(-1).numpy(), inputs, rows, out.view(-1).numpy(), columns, past_cache(out))
    if out.numel():
        spans = shares(out.numel() // columns, threads, GROUP)
        share_out(lambda span: kernel(*span, *rest), spans, threads)
    return out


def backward(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    columns, inputs = grad.shape[-1], x.shape[-1]
    threads = torch.get_num_threads()
    steps = grad.numel() // max(1, columns)
    spans = list(enumerate(shares(steps, threads, GROUP)))
    sums = np.zeros((max(1, len(spans)), inputs + 1, len(padded_row(None, x, columns))))
    kernel = gradient_kernel(simd.BYTES // x.element_size())
    rest = (x.contiguous().view(-1).numpy(), inputs, grad.contiguous().view(-1).numpy(), columns)
    share_out(lambda span: kernel(*span[1], *rest, sums[span[0]].reshape(-1)), spans, threads)
    total = torch.from_numpy(sums.sum(0)[:, :columns]).to(x.dtype)
    # The strides of a parameter, also with one column: DDP compares them.
    return total[1:].t().clone(memory_format=torch.contiguous_format), total[0].clone()
