"""The Parallel Resonate-and-Fire neuron.

    u_t = φ_re v_{t-1} - φ_im r_{t-1} + Δ c_t        φ = e^{Δ(-1/τ + iθ)}
    r_t = φ_im v_{t-1} + φ_re r_{t-1}
    s_t = [u_t ≥ V]
    v_t = u_t            reset "none"
          u_t - V s_t    reset "soft"

The state (v, r) is what is left after the reset. Gradients flow to everything that is a tensor. σ' is the surrogate's
slope where the spike is differentiated; in v_t with reset_gradient "detached" the spike is a constant.

Backends, in the order in which "auto" tries them: `scan` (CPU), `triton` (GPU), `fft`, `reference`.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from .. import checks, neuron_scan
from ..registry import Call, register, register_op, resolve
from ..surrogate import ATan, Surrogate
from . import fft, reference

RESETS = ("none", "soft")
_ATAN = ATan()


class PRFState(NamedTuple):
    u: Tensor
    r: Tensor


def prf_coefficients(delta: float | Tensor, theta: float | Tensor, tau: float | Tensor) -> tuple[Tensor, Tensor]:
    """φ_re = e^{-Δ/τ} cos Δθ and φ_im = e^{-Δ/τ} sin Δθ, each of the arguments' common shape, as a rule [N].

    delta and tau must be positive; theta is the angular frequency, 0 for no resonance.
    """
    for name, value in (("delta", delta), ("theta", theta), ("tau", tau)):
        checks.require_real("prf_coefficients", name, value)
    checks.require_positive("prf_coefficients", "delta", delta)
    checks.require_positive("prf_coefficients", "tau", tau)
    given = [value for value in (delta, theta, tau) if isinstance(value, Tensor)]
    dtype = functools.reduce(torch.promote_types, (value.dtype for value in given)) if given else None
    device = given[0].device if given else None
    delta, theta, tau = (torch.as_tensor(value, dtype=dtype, device=device) for value in (delta, theta, tau))
    size, angle = torch.exp(-delta / tau), delta * theta
    return size * torch.cos(angle), size * torch.sin(angle)


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
    """Runs the PRF over whole sequences: spikes like `current`, and the state after the last step.

    current     [B, T, N], or [1, S, N] packed with `cu_seqlens` (int32, from 0 to S); any strides
    phi_re, phi_im, delta, threshold    each a number, [] or [N]
    state       what an earlier call returned, [B, N] each; None starts from zero
    reverse     walks each sequence from its last step to its first
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
    """One time step of [B, N]. As many calls as there are steps equal one call of `prf`."""
    checks.require_current("prf_step", current, "B, N")
    call = _prepare(
        current[:, None], phi_re, phi_im, delta, threshold=threshold, reset=reset, surrogate=surrogate, state=state,
        op="prf_step",
    )  # fmt: skip
    spikes, u, r, _ = reference.step(
        current.to(call.state.dtype), call.coefficients, call.state[0], call.state[1], reset, False, surrogate
    )
    return spikes.to(current.dtype), PRFState(u, r)


register_op("prf", _prepare)
register("prf", "scan", neuron_scan.run_scan, neuron_scan.why_not_scan)
register("prf", "triton", neuron_scan.run_triton, neuron_scan.why_not_triton)
register("prf", "fft", fft.run, fft.why_not)
register("prf", "reference", reference.run, reference.why_not)
