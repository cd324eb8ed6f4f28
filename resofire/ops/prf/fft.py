"""The PRF by FFT: the paper's Algorithm 3, and for the soft reset its Algorithm 2 on top."""

import torch
from torch import Tensor

from .. import convolution
from ..packing import each_sequence
from ..registry import Call


def walk(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    phi_re, phi_im, delta, threshold = call.coefficients.unbind(0)
    spikes, last = convolution.walk(
        current, torch.complex(phi_re, phi_im), delta, threshold,
        torch.complex(state[0], state[1]) if call.carried else None, call.reset == "soft", call.surrogate,
    )  # fmt: skip
    return spikes, torch.stack((last.real, last.imag))


run = each_sequence("prf", walk)


def why_not(call: Call) -> str | None:
    if call.reset != "none" and call.full:
        return "reset_gradient='full' makes the adjoint vary in time, which is no convolution"
    return None
