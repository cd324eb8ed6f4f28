"""The LIF by FFT: the paper's Algorithms 1 and 2, the decoupled reset."""

from torch import Tensor

from .. import convolution
from ..packing import each_sequence
from ..registry import Call


def walk(current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    beta, threshold = call.coefficients.unbind(0)
    spikes, last = convolution.walk(
        current, beta, 1.0, threshold, state[0] if call.carried else None, call.reset == "soft", call.surrogate
    )
    return spikes, last[None]


run = each_sequence("lif", walk)


def why_not(call: Call) -> str | None:
    if call.reset == "hard":
        return "reset='hard' multiplies the potential, which does not move into the threshold"
    if call.reset != "none" and call.full:
        return "reset_gradient='full' makes the adjoint vary in time, which is no convolution"
    return None
