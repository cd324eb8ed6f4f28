"""Memories that feed back through an MLP: the loop of an ELM neuron.

    k_t = κ m_{t-1}                 d memories, m_{-1} = 0
    a_t = relu(x_t + F k_t)         x_t [h] is what comes from outside, F [h, d]
    c_t = tanh(G a_t + g)           G [d, h]
    m_t = k_t + λ c_t

A loop over time, one sequence at a time, with both matrices in the second-level cache. The backward pass walks it back
from a and c, which are saved, and leaves the gradients of F and G as matrix products over all steps. The definition is
`resofire.models.baselines.elm.memories`.
"""

import importlib
from typing import Any, NamedTuple, Never

import torch
from torch import Tensor

from ..checks import sequence_count
from ..neuron_scan import HAVE_NUMBA, require_like
from ..surrogate import refuse_double_backward, refuse_forward_mode

OWNER = "leaky_memory"


class Weights(NamedTuple):
    """What the loop multiplies with, in the order of the operator's arguments."""

    kappa: Tensor  # κ [d]
    feedback: Tensor  # F [h, d]
    update: Tensor  # G [d, h]
    bias: Tensor  # g [d]
    gain: Tensor  # λ [d]


def why_not_compiled(x: Tensor) -> str | None:
    """Why the kernels cannot run on x; None if they can."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return f"it runs on the CPU in float32 or float64, and x is {x.dtype} on {x.device}"
    return None


def leaky_memory(x: Tensor, weights: Weights, cu_seqlens: Tensor | None = None) -> Tensor:
    """Run the memories; the equation is at the top of this file.

    Args:
        x: Input [B, T, h], or [1, S, h] packed with `cu_seqlens`.
        weights: κ, F, G, g and λ, of the type of x.
        cu_seqlens: Boundaries of packed sequences [B + 1], int32, from 0 to S.

    Returns:
        m [B, T, d], or packed [1, S, d].
    """
    sequence_count(OWNER, x, cu_seqlens)
    refuse_forward_mode(OWNER, x, *weights)
    return _loop(x, *weights, cu_seqlens)[0]


def _require_layout(x: Tensor, weights: Weights) -> None:
    """Check the shapes that kernels rely on: an exported graph calls the operator without the public function."""
    if x.dim() != 3:
        raise ValueError(f"{OWNER}: x must be [B, T, h], or [1, S, h] when packed, got {list(x.shape)}")
    hidden, size = x.shape[2], weights.kappa.shape[0]
    shapes = ((size,), (hidden, size), (size, hidden), (size,), (size,))
    for name, value, shape in zip(Weights._fields, weights, shapes, strict=True):
        require_like(OWNER, name, value, shape, x.dtype)


def _host() -> Any:
    # Numba takes a while to import.
    return importlib.import_module(f"{__name__}.cpu")


@torch.library.custom_op("resofire::leaky_memory", mutates_args=())
def _loop(
    x: Tensor, kappa: Tensor, feedback: Tensor, update: Tensor, bias: Tensor, gain: Tensor, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    weights = Weights(kappa, feedback, update, bias, gain)
    _require_layout(x, weights)
    return _host().forward(x, weights, cu_seqlens)


@_loop.register_fake
def _(
    x: Tensor, kappa: Tensor, feedback: Tensor, update: Tensor, bias: Tensor, gain: Tensor, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    memories = x.new_empty((*x.shape[:2], kappa.shape[0]))
    return memories, x.new_empty(x.shape), torch.empty_like(memories)


@torch.library.custom_op("resofire::leaky_memory_backward", mutates_args=())
def _loop_backward(
    grad: Tensor, m: Tensor, a: Tensor, c: Tensor, kappa: Tensor, feedback: Tensor, update: Tensor, gain: Tensor,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    _require_layout(a, Weights(kappa, feedback, update, kappa, gain))
    for name, value in (("grad", grad), ("m", m), ("c", c)):
        require_like(OWNER, name, value, (*a.shape[:2], kappa.shape[0]), a.dtype)
    return _host().backward(grad, (m, a, c), Weights(kappa, feedback, update, kappa, gain), cu_seqlens)


@_loop_backward.register_fake
def _(
    grad: Tensor, m: Tensor, a: Tensor, c: Tensor, kappa: Tensor, feedback: Tensor, update: Tensor, gain: Tensor,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    grad_x, grad_kappa, grad_feedback = (each.new_empty(each.shape) for each in (a, kappa, feedback))
    grad_update, grad_bias, grad_gain = (each.new_empty(each.shape) for each in (update, gain, gain))
    return grad_x, grad_kappa, grad_feedback, grad_update, grad_bias, grad_gain


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, kappa, feedback, update, _, gain, cu_seqlens = inputs
    ctx.save_for_backward(*output, kappa, feedback, update, gain, cu_seqlens)
    ctx.set_materialize_grads(False)


def _pull_back(ctx: Any, grad: Tensor | None, *others: object) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 7
    return *_loop_backward(grad, *ctx.saved_tensors), None


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward(OWNER)


_loop.register_autograd(_pull_back, setup_context=_save)
_loop_backward.register_autograd(_refuse)
