"""The memories on the CPU: rows of weights as the kernels read them, plan and threads."""

import numpy as np
import torch
from torch import Tensor

from ..dense_linear import weight_gradient
from ..neuron_scan import padded, simd
from ..neuron_scan.cpu import plan_of, run
from . import OWNER, Weights
from .kernels import UNROLLED, backward_kernel, forward_kernel


def forward(x: Tensor, weights: Weights, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """m, a and c of all steps."""
    hidden, size = x.shape[2], weights.kappa.shape[0]
    a = x.new_empty(x.shape)
    m, c = (x.new_empty((*x.shape[:2], size)) for _ in range(2))
    # A task is a whole sequence: one lane.
    plan, shares = plan_of(OWNER, x[..., :1], cu_seqlens)
    if x.shape[:2].numel():
        run(
            forward_kernel(simd.BYTES // x.element_size()), plan, shares, x.shape[1], hidden, size, _array(x),
            _array(weights.kappa), _rows(weights.feedback.t()), _rows(weights.update.t()), _array(weights.bias),
            _array(weights.gain), _array(m), _array(a), _array(c),
        )  # fmt: skip
    return m, a, c


def backward(
    grad: Tensor, saved: tuple[Tensor, Tensor, Tensor], weights: Weights, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, κ, F, G, g and λ."""
    m, a, c = saved
    hidden, size = a.shape[2], m.shape[2]
    plan, shares = plan_of(OWNER, a[..., :1], cu_seqlens)
    grad_x, pulled, kept = a.new_empty(a.shape), m.new_empty(m.shape), m.new_empty(m.shape)
    sums = np.zeros((len(plan), 2, size))
    if a.shape[:2].numel():
        run(
            backward_kernel(simd.BYTES // a.element_size()), plan, shares, a.shape[1], hidden, size, _array(grad),
            _array(m), _array(a), _array(c), _array(weights.kappa), _rows(weights.feedback), _rows(weights.update),
            _array(weights.gain), _array(grad_x), _array(pulled), _array(kept), sums,
        )  # fmt: skip
    grad_kappa, grad_gain = torch.from_numpy(sums.sum(0)).to(a.dtype)
    grad_feedback = weight_gradient(grad_x.flatten(0, 1), kept.flatten(0, 1))
    grad_update = weight_gradient(pulled.flatten(0, 1), a.flatten(0, 1))
    return grad_x, grad_kappa.clone(), grad_feedback, grad_update, pulled.sum((0, 1)), grad_gain.clone()


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().view(-1).numpy()


def _rows(matrix: Tensor) -> np.ndarray:
    """[K, N] padded with zeros to a multiple of UNROLLED rows of whole vectors: Σ_k v_k row_k is a matrix product."""
    rows, columns = matrix.shape
    wide = matrix.new_zeros((-(-rows // UNROLLED) * UNROLLED, padded(columns)))
    wide[:rows, :columns] = matrix
    return wide.numpy()
