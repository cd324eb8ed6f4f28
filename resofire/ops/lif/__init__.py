"""The Leaky Integrate-and-Fire neuron.

    u_t = β v_{t-1} + c_t
    s_t = [u_t ≥ V]
    v_t = u_t              reset "none"
          u_t - V s_t      reset "soft"
          u_t (1 - s_t)    reset "hard"

The state v is what is left after the reset; with "soft" this is the paper's u_t = β (u_{t-1} - V s_{t-1}) + c_t.
Gradients flow to everything that is a tensor; in v_t with reset_gradient "detached" the spike is a constant.

Backends, in the order in which "auto" tries them: `scan` (CPU), `triton` (GPU), `fft`, `reference`.
"""

from typing import NamedTuple

from torch import Tensor

from .. import checks, neuron_scan
from ..registry import Call, register, register_op, resolve
from ..surrogate import ATan, Surrogate
from . import fft, reference

RESETS = ("soft", "hard", "none")
_ATAN = ATan()


class LIFState(NamedTuple):
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
    """Runs the LIF over whole sequences: spikes like `current`, and the state after the last step.

    current     [B, T, N], or [1, S, N] packed with `cu_seqlens` (int32, from 0 to S); any strides
    beta, threshold    each a number, [] or [N]
    state       what an earlier call returned, [B, N]; None starts from zero
    reverse     walks each sequence from its last step to its first
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
    """One time step of [B, N]. As many calls as there are steps equal one call of `lif`."""
    checks.require_current("lif_step", current, "B, N")
    call = _prepare(
        current[:, None], beta, threshold=threshold, reset=reset, surrogate=surrogate, state=state, op="lif_step"
    )
    spikes, u, _ = reference.step(
        current.to(call.state.dtype), call.coefficients, call.state[0], reset, False, surrogate
    )
    return spikes.to(current.dtype), LIFState(u)


register_op("lif", _prepare)
register("lif", "scan", neuron_scan.run_scan, neuron_scan.why_not_scan)
register("lif", "triton", neuron_scan.run_triton, neuron_scan.why_not_triton)
register("lif", "fft", fft.run, fft.why_not)
register("lif", "reference", reference.run, reference.why_not)
