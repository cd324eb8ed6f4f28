"""The Spatial Neuron: a LIF whose time constant has gone to 1, so that it sees the present step only."""

from typing import Any

import torch
from torch import Tensor, nn

from ..ops import ATan, Surrogate
from ..ops.checks import require_real, require_surrogate
from ..ops.surrogate import spike
from .neuron import Firing, Trace, spread


class SpatialNeuron(Firing):
    """s = α [x ≥ V], elementwise on any shape. α is one trained number, kept as log α (start α = 1), or fixed at 1.

    It has no memory: `scan` and `step` are there so that it can stand where a temporal neuron does; their state is (),
    and to walk in reverse or through packed sequences makes no difference to it.
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
        return self._sized(self._fired(spike(x - self.threshold, self.surrogate)))

    def scan(self, x: Tensor, state: tuple[()] | None = None, **options: Any) -> tuple[Tensor, tuple[()]]:
        return self(x), ()

    def step(self, x: Tensor, state: tuple[()] | None = None) -> tuple[Tensor, tuple[()]]:
        return self(x), ()

    @torch.no_grad()
    def trace(self, x: Tensor) -> Trace:
        """The potential is the input itself."""
        return Trace(self._sized(spike(x - self.threshold, self.surrogate)), x, None)

    def _sized(self, spikes: Tensor) -> Tensor:
        return spikes if self.log_amplitude is None else spikes * self.log_amplitude.exp().to(spikes.dtype)

    def extra_repr(self) -> str:
        kept = "1" if self.log_amplitude is None else f"{spread(self.log_amplitude.exp())} trained"
        return f"threshold={self.threshold:g}, amplitude={kept}, {self.surrogate}"
