"""The Leaky Integrate-and-Fire neuron.

    u_t = β v_{t-1} + c_t
    s_t = [u_t ≥ V]
    v_t = u_t              reset "none"
          u_t - V s_t      reset "soft"
          u_t (1 - s_t)    reset "hard"

The state v is the potential after the reset; with "soft" this is the paper's u_t = β (u_{t-1} - V s_{t-1}) + c_t.
Gradients flow to every tensor argument; with reset_gradient "detached" the spike in v_t is a constant.

Backends, in the order in which "auto" tries them: `scan` (CPU), `triton` (GPU), `fft`, `reference`.
"""

from typing import NamedTuple

from torch import Tensor

from .. import checks, equation, fft
from ..neuron_scan import triton_op
from ..registry import Call, register, register_op, resolve
from ..surrogate import ATan, Surrogate
from . import reference

RESETS = ("soft", "hard", "none")
_ATAN = ATan()


class LIFState(NamedTuple):
    """State of a LIF neuron.

    Attributes:
        u: Potential after the reset [B, N]; float64 for a float64 current, else float32.
    """

    u: Tensor


def _prepare(
    current: Tensor,
    beta: float | Tensor,
    *,
    threshold: float | Tensor = 1.0,
    reset: str = "soft",
    reset_gradient: str = "detached",
    surrogate: Surrogate = _ATAN,
    state: LIFState | None = None,
    cu_seqlens: Tensor | None = None,
    reverse: bool = False,
    op: str = "lif",
) -> Call:
    return checks.neuron_call(
        op,
        current,
        {"beta": beta, "threshold": threshold},
        state,
        LIFState._fields,
        resets=RESETS,
        reset=reset,
        reset_gradient=reset_gradient,
        surrogate=surrogate,
        cu_seqlens=cu_seqlens,
        reverse=reverse,
    )


def lif(
    current: Tensor,
    beta: float | Tensor,
    *,
    threshold: float | Tensor = 1.0,
    reset: str = "soft",
    reset_gradient: str = "detached",
    surrogate: Surrogate = _ATAN,
    state: LIFState | None = None,
    cu_seqlens: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, LIFState]:
    """Run LIF neurons over whole sequences; the equation is at the top of `resofire.ops.lif`.

    Args:
        current: Input [B, T, N], or [1, S, N] packed with `cu_seqlens`; any strides. float16 and bfloat16 are
            computed in float32.
        beta: Decay β per step: a number, [] or [N].
        threshold: Firing threshold V: a number, [] or [N].
        reset: "soft" subtracts V after a spike, "hard" sets the potential to 0, "none" leaves it.
        reset_gradient: "detached" treats the spike inside the reset as a constant, "full" differentiates it.
        surrogate: Derivative of a spike, evaluated at u - V.
        state: State of an earlier call, [B, N]; None starts from zero.
        cu_seqlens: Boundaries of packed sequences [B + 1], int32, from 0 to S.
        reverse: Run each sequence from its last step to its first.
        backend: "auto", or one of "scan", "triton", "fft", "reference"; see `explain`.

    Returns:
        Spikes (0 or 1) of the shape and type of `current`, and the state after the last step.

    Raises:
        RuntimeError: If the named backend cannot run this call.

    Example:
        >>> spikes, state = lif(torch.randn(8, 1000, 64), 0.9)
        >>> more_spikes, state = lif(torch.randn(8, 1000, 64), 0.9, state=state)
    """
    call = _prepare(
        current, beta, threshold=threshold, reset=reset, reset_gradient=reset_gradient, surrogate=surrogate,
        state=state, cu_seqlens=cu_seqlens, reverse=reverse,
    )  # fmt: skip
    spikes, final = resolve("lif", call, backend).run(call)
    return spikes, LIFState(final[0])


def lif_step(
    current: Tensor,
    beta: float | Tensor,
    state: LIFState | None,
    *,
    threshold: float | Tensor = 1.0,
    reset: str = "soft",
    surrogate: Surrogate = _ATAN,
) -> tuple[Tensor, LIFState]:
    """Run LIF neurons for one time step. T calls equal one call of `lif` on T steps.

    Args:
        current: Input [B, N].
        beta: Decay β per step: a number, [] or [N].
        state: State after the previous step, [B, N]; None starts from zero.
        threshold: Firing threshold V: a number, [] or [N].
        reset: "soft" subtracts V after a spike, "hard" sets the potential to 0, "none" leaves it.
        surrogate: Derivative of a spike, evaluated at u - V.

    Returns:
        Spikes (0 or 1) [B, N] of the type of `current`, and the next state.

    Example:
        >>> state = None
        >>> for current in stream:
        ...     spikes, state = lif_step(current, 0.9, state)
    """
    checks.require_current("lif_step", current, "B, N")
    call = _prepare(
        current[:, None], beta, threshold=threshold, reset=reset, surrogate=surrogate, state=state, op="lif_step"
    )
    spikes, u = reference.step(
        current.to(call.state.dtype), call.coefficients, call.state[0], reset=reset, full=False, surrogate=surrogate
    )
    return spikes.to(current.dtype), LIFState(u)


register_op("lif", _prepare)
register("lif", "scan", *equation.builtin("lif", reference, RESETS))
register("lif", "triton", triton_op.run, triton_op.why_not)
register("lif", "fft", fft.run_lif, fft.why_not)
register("lif", "reference", reference.run, reference.why_not)
