"""Pure functions on tensors: the neurons and what goes with them. No module, no parameter, no config."""

from .allocator import retain_buffers
from .checks import check_finite
from .lif import LIFState, lif, lif_step
from .moments import moments
from .prf import PRFState, prf, prf_coefficients, prf_step
from .registry import explain
from .spike_linear import spike_linear
from .surrogate import ATan, Rectangle, Sigmoid, Surrogate, Triangle

__all__ = [
    "ATan",
    "LIFState",
    "PRFState",
    "Rectangle",
    "Sigmoid",
    "Surrogate",
    "Triangle",
    "check_finite",
    "explain",
    "lif",
    "lif_step",
    "moments",
    "prf",
    "prf_coefficients",
    "prf_step",
    "retain_buffers",
    "spike_linear",
]
