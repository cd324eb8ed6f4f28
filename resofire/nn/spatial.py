"""The Spatial Neuron: a LIF with time constant 1, so that it sees only the current step."""

from typing import Any

import torch
from torch import Tensor, nn

from ..ops import ATan, Surrogate
from ..ops.checks import require_real, require_surrogate
from ..ops.surrogate import spike
from .firing import Firing
from .neuron import Trace, show_range


class SpatialNeuron(Firing):
    """s = α [x ≥ V], elementwise on any shape.

    It has no memory. `scan` and `step` make it usable as a temporal neuron; their state is (), and packing or reversing
    sequences makes no difference.

    Args:
        threshold: V.
        amplitude: Train the size α of the spikes, one number kept as `log_amplitude` (initially α = 1); else α = 1.
        surrogate: The derivative used for the spike.
    """

    def __init__(
        self,
        *,
        threshold: float = 0.5,
        amplitude: bool = True,
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        require_real("SpatialNeuron", "threshold", threshold)
        require_surrogate("SpatialNeuron", surrogate)
        self.threshold, self.surrogate = threshold, surrogate
        self.log_amplitude = nn.Parameter(torch.zeros(())) if amplitude else None

    def forward(self, x: Tensor) -> Tensor:
        return self._scaled(self._report_spikes(spike(x - self.threshold, self.surrogate)))

    def scan(self, x: Tensor, state: tuple[()] | None = None, **options: Any) -> tuple[Tensor, tuple[()]]:
        """The spikes of whole sequences, and the empty state: no step depends on another."""
        return self(x), ()

    def step(self, x: Tensor, state: tuple[()] | None = None) -> tuple[Tensor, tuple[()]]:
        """The spikes of one time step, and the empty state."""
        return self(x), ()

    @torch.no_grad()
    def trace(self, x: Tensor) -> Trace:
        """Record spikes and the argument of `spike`; there are no states."""
        above = x - self.threshold
        return Trace(self._scaled(spike(above, self.surrogate)), {}, above)

    def _scaled(self, spikes: Tensor) -> Tensor:
        return spikes if self.log_amplitude is None else spikes * self.log_amplitude.exp().to(spikes.dtype)

    def extra_repr(self) -> str:
        alpha = "1" if self.log_amplitude is None else f"{show_range(self.log_amplitude.exp())} trained"
        return f"threshold={self.threshold:g}, amplitude={alpha}, {self.surrogate}"
