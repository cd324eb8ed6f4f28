"""The LIF neuron as a module: one time constant per channel, fixed or trained (then it is the PLIF)."""

from typing import Any

import torch
from torch import Tensor, nn

from ..ops import ATan, LIFState, Surrogate, lif, lif_step
from ..ops.checks import require_current
from ..ops.lif import RESETS
from ..ops.lif.reference import step as reference_step
from .counts import Count, count_neuron
from .neuron import Neuron, Trace, draw, in_full, require_above, require_settings, spread


class LIF(Neuron):
    """Leaky Integrate-and-Fire neuron, β = 1 - 1/τ; the equation is in `resofire.ops.lif`.

    tau          a number above 1 for all channels, or a pair to draw from log-uniformly
    train_tau    trains log(τ - 1) per channel, the parameter log_tau_above_1, so that β = sigmoid(log(τ - 1)) stays
                 between 0 and 1 (the PLIF's form); otherwise the buffer tau
    """

    def __init__(
        self,
        features: int,
        *,
        tau: float | tuple[float, float] = 2.0,
        train_tau: bool = False,
        threshold: float = 1.0,
        reset: str = "soft",
        reset_gradient: str = "detached",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
        backend: str = "auto",
    ) -> None:
        super().__init__(features)
        require_settings("lif", "LIF", threshold, reset, RESETS, reset_gradient, surrogate, backend)
        require_above("LIF", "tau", tau, 1)
        values = draw("LIF", "tau", tau, features, log=True)
        if train_tau:
            self.log_tau_above_1 = nn.Parameter((values - 1).log())
        else:
            self.register_buffer("tau", values)
        self.train_tau, self.threshold = train_tau, threshold
        self.reset, self.reset_gradient = reset, reset_gradient
        self.surrogate, self.backend = surrogate, backend

    def beta(self) -> Tensor:
        """The decay β per channel, [features]."""
        if self.train_tau:
            return torch.sigmoid(in_full(self.log_tau_above_1))
        return 1 - 1 / in_full(self.get_buffer("tau"))

    def rows(self) -> Tensor:
        beta = self.beta()
        return torch.stack((beta, torch.full_like(beta, self.threshold)))

    def scan(self, x: Tensor, state: LIFState | None = None, **options: Any) -> tuple[Tensor, LIFState]:
        """A whole sequence; `cu_seqlens` and `reverse` are options, as in `resofire.ops.lif`."""
        spikes, last = lif(
            x, self.beta(), threshold=self.threshold, reset=self.reset, reset_gradient=self.reset_gradient,
            surrogate=self.surrogate, state=state, backend=self.backend, **options,
        )  # fmt: skip
        return self._fired(spikes), last

    def step(self, x: Tensor, state: LIFState | None) -> tuple[Tensor, LIFState]:
        spikes, last = lif_step(
            x, self.beta(), state, threshold=self.threshold, reset=self.reset, surrogate=self.surrogate
        )
        return self._fired(spikes), last

    def init_state(self, batch: int) -> LIFState:
        return LIFState(self.beta().new_zeros(batch, self.features))

    @torch.no_grad()
    def trace(self, x: Tensor) -> Trace:
        require_current("LIF.trace", x, "B, T, N")
        rows = self.rows()
        u = x.new_zeros(x.shape[0], self.features)
        seen = []
        for t in range(x.shape[1]):
            spikes, u, peak = reference_step(x[:, t], rows, u, self.reset, False, self.surrogate)
            seen.append(torch.stack((spikes, peak)))
        spikes, peaks = torch.stack(seen, 2)
        return Trace(spikes, peaks, None)

    def extra_repr(self) -> str:
        tau = f"tau={spread(1 / (1 - self.beta()))}"
        kept = "trained" if self.train_tau else "fixed"
        return (
            f"{self.features}, {tau} {kept}, threshold={self.threshold:g}, reset={self.reset!r}, "
            f"reset_gradient={self.reset_gradient!r}, {self.surrogate}"
        )

    def count(self, name: str, steps: float) -> Count:
        """Count the plain equation of `resofire.ops.lif`; a soft reset is one addition more, whatever the spike."""
        operations = {"multiply": 1, "add": 1 + (self.reset == "soft"), "compare": 1}
        return count_neuron(name, self.features, steps, operations, coefficients=1, states=1)
