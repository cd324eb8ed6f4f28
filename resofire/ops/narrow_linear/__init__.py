"""A linear layer with few inputs, such as the first layer on a signal or on pixels.

    out = x Wᵀ + b        x [..., in] with a handful of inputs, W [out, in], b [out]

Memory traffic dominates: the output is written once, and the gradients of W and b are computed in one pass over the
output's. A general matrix product takes several times as long for one column. Without the kernels it is the plain
product.
"""

import importlib
import math
from typing import Any, Never

import torch
import torch.nn.functional as F
from torch import Tensor

from ..neuron_scan import HAVE_NUMBA
from ..surrogate import refuse_double_backward, refuse_forward_mode

MOST_INPUTS = 8


def narrow_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a linear layer to [..., in]: `torch.nn.functional.linear` up to rounding."""
    has_kernel = HAVE_NUMBA and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if not has_kernel or not 1 <= weight.shape[1] <= MOST_INPUTS or not x.dtype == weight.dtype == bias.dtype:
        return F.linear(x, weight, bias)
    refuse_forward_mode("narrow_linear", x, weight, bias)
    return _linear(x, weight, bias)


def _host() -> Any:
    return importlib.import_module(f"{__name__}.cpu")


def _require_layout(x: Tensor, weight: Tensor, out: tuple[int, ...]) -> None:
    """Check the shapes that kernels rely on: an exported graph calls the operator without the public function."""
    if x.dim() < 1 or x.shape[-1] < 1 or weight.shape != (out[-1], x.shape[-1]) or weight.dtype != x.dtype:
        raise ValueError(
            f"narrow_linear: weight must be {x.dtype} [{out[-1]}, {x.shape[-1]}] to go with x {list(x.shape)}, "
            f"got {weight.dtype} {list(weight.shape)}"
        )


@torch.library.custom_op("resofire::narrow_linear", mutates_args=())
def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    out = (*x.shape[:-1], bias.shape[0])
    _require_layout(x, weight, out)
    return _host().forward(x, weight, bias)


@_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@torch.library.custom_op("resofire::narrow_linear_backward", mutates_args=())
def _linear_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of weight and bias."""
    _require_layout(x, weight, tuple(grad.shape))
    if math.prod(grad.shape[:-1]) != math.prod(x.shape[:-1]) or grad.dtype != x.dtype:
        got = f"{grad.dtype} {list(grad.shape)}"
        raise ValueError(f"narrow_linear: grad must go with x {x.dtype} {list(x.shape)}, got {got}")
    return _host().backward(grad, x)


@_linear_backward.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(weight, memory_format=torch.contiguous_format), weight.new_empty(weight.shape[0])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _pull_back(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    trained = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    grads = _linear_backward(grad, x, weight) if trained else (None, None)
    return grad @ weight if ctx.needs_input_grad[0] else None, *grads


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("narrow_linear")


_linear.register_autograd(_pull_back, setup_context=_save)
_linear_backward.register_autograd(_refuse)
