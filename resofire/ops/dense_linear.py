"""A linear layer on real values, by oneDNN where torch's own product is slow.

    out = x Wᵀ + b        x [..., in], W [out, in], b [out]

torch multiplies float32 matrices with Intel's MKL, which takes its AVX2 kernels on AMD's CPUs: 90 GFLOP/s on a core of
a Zen 5 that does 220 with oneDNN, which torch contains too and uses for compiled models. So do we, for all three
products, on AMD CPUs with AVX-512. Everywhere else it is torch's linear.
"""

import functools
from pathlib import Path
from typing import Any, Never

import torch
import torch.nn.functional as F
from torch import Tensor

from .surrogate import refuse_double_backward, refuse_forward_mode

# With fewer rows the call takes longer than the product.
LEAST_ROWS = 256
CPU_INFO = Path("/proc/cpuinfo")


def dense_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply a linear layer: `torch.nn.functional.linear` up to rounding.

    Args:
        x: Input [..., in].
        weight: Weights [out, in].
        bias: Bias [out]; None: no bias.

    Returns:
        The output [..., out].
    """
    if bias is None or not _by_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    refuse_forward_mode("dense_linear", x, weight, bias)
    return _linear(x, weight, bias)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    if any(each.device.type != "cpu" or each.dtype != torch.float32 for each in (x, weight, bias)):
        return False
    large = weight.numel() > 0 and x.numel() >= LEAST_ROWS * weight.shape[1]
    return large and not torch.is_autocast_enabled("cpu") and onednn_is_faster()


@functools.cache
def onednn_is_faster() -> bool:
    """Whether this is an AMD CPU with AVX-512 and a torch with both MKL and oneDNN."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    # The operator that torch's compiler calls for a linear layer; not part of its documented interface.
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return CPU_INFO.exists() and "AuthenticAMD" in CPU_INFO.read_text()


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]).contiguous()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if x.numel() == 0:
        return F.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """gradᵀ x [out, in] of rows [S, out] and [S, in], the gradient of the weights of a linear layer."""
    if x.shape[0] < LEAST_ROWS or not x.dtype == grad.dtype == torch.float32 or not onednn_is_faster():
        return grad.t() @ x
    return _weight_gradient(grad, x)


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    # xᵀ grad is faster than its transpose where x is the narrower one, as here.
    return _product(x.t(), grad.t()).t().contiguous()


@torch.library.custom_op("resofire::dense_linear", mutates_args=())
def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    # Of rows with gaps oneDNN has no fast product: a thousand times slower.
    return _product(_rows(x), weight.contiguous(), bias).view(*x.shape[:-1], weight.shape[0])


@_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@torch.library.custom_op("resofire::dense_linear_backward", mutates_args=())
def _linear_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, pulled = _rows(x), _rows(grad)
    grad_x = _product(pulled, weight.t().contiguous()).view(x.shape)
    return grad_x, _weight_gradient(pulled, rows), pulled.sum(0)


@_linear_backward.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape[0])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _pull_back(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _linear_backward(grad, *ctx.saved_tensors)


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("dense_linear")


_linear.register_autograd(_pull_back, setup_context=_save)
_linear_backward.register_autograd(_refuse)
