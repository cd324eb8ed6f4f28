"""Pure functions on tensors: neurons, synapses and statistics. No modules, no parameters, no configs.

Shapes: B sequences, T time steps, N channels. Packed sequences are [1, S, N] with boundaries `cu_seqlens` [B + 1].
"""

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
