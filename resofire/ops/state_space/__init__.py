"""A diagonal state space of every channel, with a real input and output: the linear recurrence of S4D.

    h_t = Ā h_{t-1} + x_t                           P complex states per channel, h_{-1} = 0 or the state handed over
    y_t = Re Σ_p w h_t + D x_t
    y_t += Re Σ_p w' h'_{t+1}                       both ways: h'_t = Ā h'_{t+1} + x_t, h' = 0 behind the last step

Ā and w are [2, P, N], real and imaginary part; w' reads the states of the reversed sequence one step ahead, so that no
step counts twice. It is a PRF with P resonators and without a spike.

`reference` is the definition, step by step under autograd. The kernels (`kernels`, `cpu`) run packed sequences without
padding, save h every CHUNK steps and recompute the rest in the backward pass. Gradients of coefficients are summed in
float64 over chunks and sequences, in a fixed order.
"""

import importlib
from typing import Any, Never

import torch
from torch import Tensor

from ..checks import require_current, sequence_count, state_dtype
from ..neuron_scan import HAVE_NUMBA, chunk_rows, padded, require_like, sequences_of
from ..surrogate import refuse_double_backward, refuse_forward_mode

OWNER = "state_space"
# Complex states that a kernel runs at a time; others are padded with a state of zero weight.
PAIRS = 2


def why_not_scan(x: Tensor) -> str | None:
    """Why the kernels cannot run on x; None if they can."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    return None if x.device.type == "cpu" else f"it runs on the CPU, and x is on {x.device}"


def state_space(
    x: Tensor,
    decay: Tensor,
    weight: Tensor,
    through: Tensor,
    *,
    ahead: Tensor | None = None,
    state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run a diagonal state space; the equation is at the top of this file.

    Args:
        x: Input [B, T, N], or [1, S, N] packed with `cu_seqlens`.
        decay: Ā [2, P, N], real and imaginary part; float64 for a float64 x, else float32, as all that follow.
        weight: w [2, P, N].
        through: D [N].
        ahead: w' [2, P, N] of the reversed sequence; None: causal.
        state: h before the first step [2, P, B, N], not with `ahead`; None is 0.
        cu_seqlens: Boundaries of packed sequences [B + 1], int32, from 0 to S.

    Returns:
        y like x, and h after the last step, [2, P, B, N].

    Raises:
        TypeError: If an argument has a wrong type.
        ValueError: If an argument has a wrong shape or value.
        RuntimeError: If the kernels cannot run; `why_not_scan` says why.

    Example:
        >>> decay, weight = torch.tensor([0.9, 0.1]).view(2, 1, 1), torch.tensor([1.0, 0.0]).view(2, 1, 1)
        >>> y, h = state_space(torch.ones(1, 3, 1), decay, weight, torch.zeros(1))
    """
    require_current(OWNER, x, "B, T, N")
    reason = why_not_scan(x)
    if reason is not None:
        raise RuntimeError(f"{OWNER}: {reason}")
    if ahead is not None and state is not None:
        raise ValueError(f"{OWNER}: state must be None with ahead, which reads each sequence from its end")
    batch = sequence_count(OWNER, x, cu_seqlens)
    if decay.dim() != 3:
        raise ValueError(f"{OWNER}: decay must have shape [2, P, {x.shape[2]}], got {list(decay.shape)}")
    if state is None:
        state = decay.new_zeros((2, decay.shape[1], batch, x.shape[2]))
    for name, row in (("weight", weight), ("ahead", ahead)):
        require_like(OWNER, name, row, tuple(decay.shape), state_dtype(x))
    weights = torch.stack((weight,) if ahead is None else (weight, ahead))
    refuse_forward_mode(OWNER, x, decay, weights, through, state)
    y, last, _ = _scan(x.to(state_dtype(x)), decay, weights, through, state, cu_seqlens)
    return y.to(x.dtype), last


def even(pairs: int) -> int:
    """The number of complex states in the kernels' memory."""
    return -(-pairs // PAIRS) * PAIRS


def checkpoint_shape(x: Tensor, weights: Tensor, cu_seqlens: Tensor | None) -> tuple[int, ...]:
    """The states before each chunk, of each direction."""
    return weights.shape[0], chunk_rows(x, cu_seqlens), 2, even(weights.shape[2]), padded(x.shape[2])


def _require_layout(
    x: Tensor, decay: Tensor, weights: Tensor, through: Tensor, state: Tensor | None, cu_seqlens: Tensor | None
) -> None:
    """Check the shapes that kernels rely on: an exported graph calls the operator without the public function."""
    if x.dim() != 3 or (cu_seqlens is not None and (cu_seqlens.dim() != 1 or x.shape[0] != 1)):
        raise ValueError(f"{OWNER}: x must be [B, T, N], or [1, S, N] when packed, got {list(x.shape)}")
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{OWNER}: x must be float32 or float64, got {x.dtype}")
    if weights.dim() != 4 or weights.shape[0] not in (1, 2):
        raise ValueError(f"{OWNER}: weights must be [1 or 2, 2, P, {x.shape[2]}], got {list(weights.shape)}")
    lanes, pairs = x.shape[2], weights.shape[2]
    require_like(OWNER, "weights", weights, (weights.shape[0], 2, pairs, lanes), x.dtype)
    require_like(OWNER, "decay", decay, (2, pairs, lanes), x.dtype)
    require_like(OWNER, "through", through, (lanes,), x.dtype)
    require_like(OWNER, "state", state, (2, pairs, sequences_of(x, cu_seqlens), lanes), x.dtype)


def _host() -> Any:
    # Numba takes a while to import.
    return importlib.import_module(f"{__name__}.cpu")


@torch.library.custom_op("resofire::state_space", mutates_args=())
def _scan(
    x: Tensor, decay: Tensor, weights: Tensor, through: Tensor, state: Tensor, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    _require_layout(x, decay, weights, through, state, cu_seqlens)
    host = _host()
    return host.forward(host.Inputs(x, decay, weights, through, cu_seqlens), state)


@_scan.register_fake
def _(
    x: Tensor, decay: Tensor, weights: Tensor, through: Tensor, state: Tensor, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    last = state.new_empty(state.shape)
    return torch.empty_like(x), last, x.new_empty(checkpoint_shape(x, weights, cu_seqlens))


@torch.library.custom_op("resofire::state_space_backward", mutates_args=())
def _scan_backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    x: Tensor,
    decay: Tensor,
    weights: Tensor,
    through: Tensor,
    kept: Tensor,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    _require_layout(x, decay, weights, through, grad_state, cu_seqlens)
    require_like(OWNER, "grad_y", grad_y, tuple(x.shape), x.dtype)
    require_like(OWNER, "kept", kept, checkpoint_shape(x, weights, cu_seqlens), x.dtype)
    host = _host()
    return host.backward(host.Inputs(x, decay, weights, through, cu_seqlens), kept, grad_y, grad_state)


@_scan_backward.register_fake
def _(
    grad_y: Tensor,
    grad_state: Tensor | None,
    x: Tensor,
    decay: Tensor,
    weights: Tensor,
    through: Tensor,
    kept: Tensor,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    state = x.new_empty((2, decay.shape[1], sequences_of(x, cu_seqlens), x.shape[2]))
    grad_decay, grad_weights, grad_through = (value.new_empty(value.shape) for value in (decay, weights, through))
    return torch.empty_like(x), grad_decay, grad_weights, grad_through, state


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, decay, weights, through, _, cu_seqlens = inputs
    ctx.save_for_backward(x, decay, weights, through, output[2], cu_seqlens)
    ctx.set_materialize_grads(False)


def _pull_back(ctx: Any, grad_y: Tensor | None, grad_state: Tensor | None, _: object) -> tuple[Tensor | None, ...]:
    if grad_y is None and grad_state is None:
        return (None,) * 6
    if grad_y is None:
        grad_y = ctx.saved_tensors[0].new_zeros(1).expand(ctx.saved_tensors[0].shape)
    return *_scan_backward(grad_y, grad_state, *ctx.saved_tensors), None


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward(OWNER)


_scan.register_autograd(_pull_back, setup_context=_save)
_scan_backward.register_autograd(_refuse)
