"""The Parallel Resonate-and-Fire neuron.

    u_t = φ_re v_{t-1} - φ_im r_{t-1} + Δ c_t        φ = e^{Δ(-1/τ + iθ)}
    r_t = φ_im v_{t-1} + φ_re r_{t-1}
    s_t = [u_t ≥ V]
    v_t = u_t            reset "none"
          u_t - V s_t    reset "soft"

The state is PRFState(u=v, r=r), after the reset. Δ in u_t is the argument delta, a factor on the current; it need not
be the Δ of φ. Gradients flow to every tensor argument. The derivative of a spike is the surrogate's; with
reset_gradient "detached" the spike in v_t is a constant.

Backends, in the order in which "auto" tries them: `scan` (CPU), `triton` (GPU), `fft`, `reference`.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks, equation, fft
from ..neuron_scan import triton_op
from ..registry import Call, register, register_op, resolve
from ..surrogate import ATan, Surrogate
from . import reference

RESETS = ("none", "soft")
_ATAN = ATan()


class PRFState(NamedTuple):
    """State of a PRF neuron, the real and imaginary part of its complex potential.

    Both are float64 for a float64 current, else float32.

    Attributes:
        u: Potential after the reset [B, N].
        r: Imaginary part [B, N].
    """

    u: Tensor
    r: Tensor


def prf_coefficients(delta: float | Tensor, theta: float | Tensor, tau: float | Tensor) -> tuple[Tensor, Tensor]:
    """Compute the decay φ = e^{Δ(-1/τ + iθ)} of a PRF neuron as its real and imaginary part.

    Args:
        delta: Time step Δ > 0: a number or a tensor, usually [N].
        theta: Angular frequency θ; 0 for no resonance.
        tau: Time constant τ > 0.

    Returns:
        φ_re = e^{-Δ/τ} cos Δθ and φ_im = e^{-Δ/τ} sin Δθ, each of the broadcast shape of the arguments.

    Raises:
        TypeError: If an argument is neither a number nor a floating-point tensor.
        ValueError: If delta or tau is not positive (not checked on a GPU).

    Example:
        >>> delta = torch.full((64,), 0.05)
        >>> phi_re, phi_im = prf_coefficients(delta, torch.linspace(0, 6, 64), 2.0)
        >>> spikes, state = prf(current, phi_re, phi_im, delta)
    """
    for name, value in (("delta", delta), ("theta", theta), ("tau", tau)):
        checks.require_real("prf_coefficients", name, value)
    checks.require_positive("prf_coefficients", "delta", delta)
    checks.require_positive("prf_coefficients", "tau", tau)
    tensors = [value for value in (delta, theta, tau) if isinstance(value, Tensor)]
    dtype = functools.reduce(torch.promote_types, (value.dtype for value in tensors)) if tensors else None
    device = tensors[0].device if tensors else None
    delta, theta, tau = (torch.as_tensor(value, dtype=dtype, device=device) for value in (delta, theta, tau))
    magnitude, angle = torch.exp(-delta / tau), delta * theta
    return magnitude * torch.cos(angle), magnitude * torch.sin(angle)


def _prepare(
    current: Tensor,
    phi_re: float | Tensor,
    phi_im: float | Tensor,
    delta: float | Tensor,
    *,
    threshold: float | Tensor = 1.0,
    reset: str = "none",
    reset_gradient: str = "detached",
    surrogate: Surrogate = _ATAN,
    state: PRFState | None = None,
    cu_seqlens: Tensor | None = None,
    reverse: bool = False,
    op: str = "prf",
) -> Call:
    return checks.neuron_call(
        op,
        current,
        {"phi_re": phi_re, "phi_im": phi_im, "delta": delta, "threshold": threshold},
        state,
        PRFState._fields,
        resets=RESETS,
        reset=reset,
        reset_gradient=reset_gradient,
        surrogate=surrogate,
        cu_seqlens=cu_seqlens,
        reverse=reverse,
    )


def prf(
    current: Tensor,
    phi_re: float | Tensor,
    phi_im: float | Tensor,
    delta: float | Tensor,
    *,
    threshold: float | Tensor = 1.0,
    reset: str = "none",
    reset_gradient: str = "detached",
    surrogate: Surrogate = _ATAN,
    state: PRFState | None = None,
    cu_seqlens: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, PRFState]:
    """Run PRF neurons over whole sequences; the equation is at the top of `resofire.ops.prf`.

    Args:
        current: Input [B, T, N], or [1, S, N] packed with `cu_seqlens`; any strides. float16 and bfloat16 are
            computed in float32.
        phi_re: Real part of the decay φ: a number, [] or [N]; see `prf_coefficients`.
        phi_im: Imaginary part of φ: a number, [] or [N].
        delta: Factor Δ on the current: a number, [] or [N].
        threshold: Firing threshold V: a number, [] or [N].
        reset: "none" leaves the potential after a spike, "soft" subtracts V.
        reset_gradient: "detached" treats the spike inside the reset as a constant, "full" differentiates it.
        surrogate: Derivative of a spike, evaluated at u - V.
        state: State of an earlier call, [B, N] each; None starts from zero.
        cu_seqlens: Boundaries of packed sequences [B + 1], int32, from 0 to S.
        reverse: Run each sequence from its last step to its first.
        backend: "auto", or one of "scan", "triton", "fft", "reference"; see `explain`.

    Returns:
        Spikes (0 or 1) of the shape and type of `current`, and the state after the last step.

    Raises:
        RuntimeError: If the named backend cannot run this call.

    Example:
        >>> phi_re, phi_im = prf_coefficients(0.05, torch.linspace(0, 6, 64), 2.0)
        >>> spikes, state = prf(torch.randn(8, 1000, 64), phi_re, phi_im, 0.05)
    """
    call = _prepare(
        current, phi_re, phi_im, delta, threshold=threshold, reset=reset, reset_gradient=reset_gradient,
        surrogate=surrogate, state=state, cu_seqlens=cu_seqlens, reverse=reverse,
    )  # fmt: skip
    spikes, final = resolve("prf", call, backend).run(call)
    return spikes, PRFState(final[0], final[1])


def prf_step(
    current: Tensor,
    phi_re: float | Tensor,
    phi_im: float | Tensor,
    delta: float | Tensor,
    state: PRFState | None,
    *,
    threshold: float | Tensor = 1.0,
    reset: str = "none",
    surrogate: Surrogate = _ATAN,
) -> tuple[Tensor, PRFState]:
    """Run PRF neurons for one time step. T calls equal one call of `prf` on T steps.

    Args:
        current: Input [B, N].
        phi_re: Real part of the decay φ: a number, [] or [N]; see `prf_coefficients`.
        phi_im: Imaginary part of φ: a number, [] or [N].
        delta: Factor Δ on the current: a number, [] or [N].
        state: State after the previous step, [B, N] each; None starts from zero.
        threshold: Firing threshold V: a number, [] or [N].
        reset: "none" leaves the potential after a spike, "soft" subtracts V.
        surrogate: Derivative of a spike, evaluated at u - V.

    Returns:
        Spikes (0 or 1) [B, N] of the type of `current`, and the next state.

    Example:
        >>> state = None
        >>> for current in stream:
        ...     spikes, state = prf_step(current, phi_re, phi_im, delta, state)
    """
    checks.require_current("prf_step", current, "B, N")
    call = _prepare(
        current[:, None], phi_re, phi_im, delta, threshold=threshold, reset=reset, surrogate=surrogate, state=state,
        op="prf_step",
    )  # fmt: skip
    spikes, u, r = reference.step(
        current.to(call.state.dtype), call.coefficients, call.state[0], call.state[1], reset=reset, full=False,
        surrogate=surrogate,
    )  # fmt: skip
    return spikes.to(current.dtype), PRFState(u, r)


register_op("prf", _prepare)
register("prf", "scan", *equation.builtin("prf", reference, RESETS))
register("prf", "triton", triton_op.run, triton_op.why_not)
register("prf", "fft", fft.run_prf, fft.why_not)
register("prf", "reference", reference.run, reference.why_not)
