"""The backend `fft` of both neurons: the paper's Algorithms 1 to 3; `convolution` has what they share."""

import torch
from torch import Tensor

from . import convolution
from .packing import each_sequence
from .registry import Call


def _prf(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """Algorithm 3, and for the soft reset Algorithm 2 on top."""
    phi_re, phi_im, delta, threshold = call.coefficients.unbind(0)
    spikes, last = convolution.walk(
        current, torch.complex(phi_re, phi_im), delta, threshold,
        start=torch.complex(state[0], state[1]) if call.carried else None, soft=call.reset == "soft",
        surrogate=call.surrogate,
    )  # fmt: skip
    return spikes, torch.stack((last.real, last.imag))


def _lif(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    """Algorithms 1 and 2, the decoupled reset."""
    beta, threshold = call.coefficients.unbind(0)
    start = state[0] if call.carried else None
    spikes, last = convolution.walk(
        current, beta, 1.0, threshold, start=start, soft=call.reset == "soft", surrogate=call.surrogate
    )
    return spikes, last[None]


run_prf, run_lif = each_sequence("prf", _prf), each_sequence("lif", _lif)


def why_not(call: Call) -> str | None:
    """Why a call has no parallel form; None if it has one."""
    if call.reset == "hard":
        return "reset='hard' multiplies the potential, which does not move into the threshold"
    if call.reset != "none" and call.full:
        return "reset_gradient='full' makes the adjoint vary in time, which is no convolution"
    return None
