"""The LIF neuron as a module: one time constant per channel, fixed or trained (then it is the PLIF)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..ops import ATan, LIFState, Surrogate, explain, lif, lif_step
from ..ops.lif import RESETS
from ..ops.lif.reference import dynamics
from .config import NeuronConfig, settings_of
from .counts import Count, count_neuron
from .folded import Array, Neurons, temporal, to_array
from .neuron import Neuron, in_full, require_above, require_settings, sample, show_range


@dataclass(frozen=True)
class LIFConfig(NeuronConfig):
    """The settings of a `LIF`. A number sets τ of all channels, a pair is a range to sample from."""

    tau: float | tuple[float, float] = 2.0
    """Time constant, above 1: β = 1 - 1/τ."""
    train_tau: bool = False
    """Train τ per channel."""
    threshold: float = 1.0
    """Potential at which it fires."""
    reset: str = "soft"
    """none, soft or hard."""
    reset_gradient: str = "detached"
    """Whether the spike in the reset carries a gradient: detached (no) or full."""
    surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    """The derivative used for the spike."""
    backend: str = "auto"
    """Backend, see `resofire.ops.lif`."""

    def build(self, features: int) -> "LIF":
        return LIF(features, **settings_of(self))


class LIF(Neuron, config_class=LIFConfig):
    """Leaky Integrate-and-Fire neuron, β = 1 - 1/τ; the equation is in `resofire.ops.lif`.

    Args:
        features: Number of channels.
        tau: Time constant above 1; a number for all channels, or a pair to sample from log-uniformly.
        train_tau: Train log(τ - 1) per channel, the parameter `log_tau_above_1`, so that β = sigmoid(log(τ - 1))
            stays between 0 and 1 (the PLIF's form); otherwise τ is the buffer `tau`.
        threshold: Potential V at which it fires.
        reset: "none", "soft" or "hard".
        reset_gradient: Whether the spike in the reset carries a gradient: "detached" (no) or "full".
        surrogate: The derivative used for the spike.
        backend: One of those of `resofire.ops.lif`.
    """

    states = LIFState._fields

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
        super().__init__(features, surrogate=surrogate)
        require_settings(
            "lif", "LIF", threshold=threshold, reset=reset, resets=RESETS, reset_gradient=reset_gradient,
            surrogate=surrogate, backend=backend,
        )  # fmt: skip
        require_above("LIF", "tau", tau, 1)
        values = sample("LIF", "tau", tau, features, log=True)
        if train_tau:
            self.log_tau_above_1 = nn.Parameter((values - 1).log())
        else:
            self.register_buffer("tau", values)
        self.train_tau, self.threshold = train_tau, threshold
        self.reset, self.reset_gradient, self.backend = reset, reset_gradient, backend

    def beta(self) -> Tensor:
        """The decay β per channel, [features]."""
        if self.train_tau:
            return torch.sigmoid(in_full(self.log_tau_above_1))
        return 1 - 1 / in_full(self.get_buffer("tau"))

    def coefficients(self) -> dict[str, Tensor]:
        """β [features] and the threshold []."""
        beta = self.beta()
        return {"beta": beta, "threshold": beta.new_tensor(self.threshold)}

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        return dynamics(current, state, c, spike, reset=self.reset, full=self.reset_gradient == "full")

    def scan(
        self, x: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, LIFState]:
        self._require_channels(x)
        spikes, last = lif(x, **self._call(), state=state, backend=self.backend, cu_seqlens=cu_seqlens, reverse=reverse)
        return self._report_spikes(spikes), last

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, LIFState]:
        self._require_channels(x)
        options = self._call()
        del options["reset_gradient"]
        spikes, last = lif_step(x, state=state, **options)
        return self._report_spikes(spikes), last

    @property
    def state_type(self) -> Any:
        return LIFState

    def explain(self, x: Tensor) -> str:
        self._require_channels(x)
        return str(explain("lif", x, **self._call(), backend=self.backend))

    def _call(self) -> dict[str, Any]:
        return {
            "beta": self.beta(), "threshold": self.threshold, "reset": self.reset,
            "reset_gradient": self.reset_gradient, "surrogate": self.surrogate,
        }  # fmt: skip

    def extra_repr(self) -> str:
        tau = f"tau={show_range(1 / (1 - self.beta()))}"
        trained = "trained" if self.train_tau else "fixed"
        return (
            f"{self.features}, {tau} {trained}, threshold={self.threshold:g}, reset={self.reset!r}, "
            f"reset_gradient={self.reset_gradient!r}, {self.surrogate}"
        )

    @torch.no_grad()
    def fold(self, a: Array, b: Array) -> Neurons:
        """These neurons as arrays, reading a z + b; see `resofire.nn.folded`."""
        beta = to_array(self.beta())
        zero, one = np.zeros_like(beta), np.ones_like(beta)
        return temporal("lif", phi_re=beta, phi_im=zero, gain=one, threshold=self.threshold, reset=self.reset, a=a, b=b)

    def count(self, name: str, steps: float) -> Count:
        """Count the plain equation of `resofire.ops.lif`; a soft reset is one addition more, whatever the spike."""
        operations = {"multiply": 1, "add": 1 + (self.reset == "soft"), "compare": 1}
        return count_neuron(name, self.features, steps, operations, coefficients=1, states=1)
