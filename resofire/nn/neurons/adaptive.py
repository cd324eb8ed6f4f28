"""Neurons that fire less after they have fired: by a higher threshold (ALIF) or by a slow current (AHP)."""

from typing import Any

import torch
from torch import Tensor

from ...ops import ATan, Surrogate
from ...ops.checks import require_choice, require_real
from ..neuron import Neuron, require_above, sample, show_range
from .integrate import RESET_GRADIENTS, reset_spike


class ALIF(Neuron):
    """Adaptive LIF: each spike raises the threshold, which decays back.

        ϑ_t = b₀ + β η_{t-1}
        v_t = u_{t-1} + (1-α) c_t,   s_t = [v_t ≥ ϑ_t]
        η_t = ρ η_{t-1} + (1-ρ) s_t
        u_t = α v_t - (b₀ + β η_t) s_t

    with α = exp(-1/τ) and ρ = exp(-1/τ_adapt), trained per channel. The state u is the potential after decay and reset:
    a spike takes the threshold it has itself raised.

    B. Yin, F. Corradi, S. M. Bohté: "Accurate and efficient time-domain classification with adaptive spiking recurrent
    neural networks", Nature Machine Intelligence 2021, arXiv 2103.12593. The original trains τ and τ_adapt themselves;
    here their logarithms are trained, so that both stay positive. The default ranges have the mean and the deviation of
    the original normal distributions, 20 ± 5 and 200 ± 25 steps.

    Args:
        features: Number of channels.
        tau: Time constant of the potential; a number for all channels, or a pair to sample from uniformly.
        tau_adapt: Time constant of the threshold, likewise.
        train_tau: Train both per channel, as `log_tau` and `log_tau_adapt`; otherwise they are buffers.
        beta: How far the threshold rises.
        threshold: Threshold b₀ at rest.
        reset_gradient: Whether the spike in the reset carries a gradient: "detached" (no) or "full".
        surrogate: The derivative used for the spike.
    """

    states = ("u", "eta")

    def __init__(
        self,
        features: int,
        *,
        tau: float | tuple[float, float] = (11.3, 28.7),
        tau_adapt: float | tuple[float, float] = (157.0, 243.0),
        train_tau: bool = True,
        beta: float = 1.8,
        threshold: float = 0.01,
        reset_gradient: str = "full",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        for name, value in (("tau", tau), ("tau_adapt", tau_adapt)):
            require_above("ALIF", name, value, 0)
            self._keep_log(name, sample("ALIF", name, value, features), train_tau)
        require_real("ALIF", "beta", beta)
        require_real("ALIF", "threshold", threshold)
        require_choice("ALIF", "reset_gradient", reset_gradient, RESET_GRADIENTS)
        self.beta, self.threshold, self.reset_gradient = beta, threshold, reset_gradient

    def coefficients(self) -> dict[str, Tensor]:
        """α, 1-α, ρ and 1-ρ, each [features]; β and b₀, each []."""
        tau, tau_adapt = self._value("tau"), self._value("tau_adapt")
        return {
            "alpha": torch.exp(-1 / tau),
            "gain": -torch.expm1(-1 / tau),
            "rho": torch.exp(-1 / tau_adapt),
            "rise": -torch.expm1(-1 / tau_adapt),
            "beta": tau.new_tensor(self.beta),
            "threshold": tau.new_tensor(self.threshold),
        }

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        v = state.u + c.gain * current
        s = spike(v - c.threshold - c.beta * state.eta)
        z = reset_spike(s, self.reset_gradient)
        eta = c.rho * state.eta + c.rise * s
        return s, {"u": c.alpha * v - (c.threshold + c.beta * eta) * z, "eta": eta}

    def extra_repr(self) -> str:
        taus = f"tau={show_range(self._value('tau'))}, tau_adapt={show_range(self._value('tau_adapt'))}"
        return f"{self.features}, {taus}, beta={self.beta:g}, threshold={self.threshold:g}, {self.surrogate}"


class AHP(Neuron):
    """LIF with a slow after-hyperpolarising current, driven by the neuron's own spikes.

        u_t = α u_{t-1} + c_t - κ a_{t-1}
        s_t = [u_t ≥ V],   then u_t = 0 where s_t = 1
        a_t = ρ a_{t-1} + s_t

    with α = exp(-1/τ) and ρ = exp(-1/τ_ahp).

    A. Rao, P. Plank, A. Wild, W. Maass: "A Long Short-Term Memory for AI Applications in Spike-based Neuromorphic
    Hardware", Nature Machine Intelligence 2022, arXiv 2107.03992. The equation is that of the authors' code for Loihi
    (intel-nrc-ecosystem/models, nxsdk_modules_ncl/lsnn): an auxiliary compartment that each spike lowers by a constant
    and that decays with τ_ahp is added to the input of the main one, which decays with τ and is reset to 0 by a spike.
    So are the defaults, those of its network for sequential MNIST in units of V = 127 · 64: τ = 20, τ_ahp = 700 and
    κ = 96 / (127 · 64), so that a spike holds the potential down by up to 0.24 V for about 700 steps. There decays are
    integers, 204/4096 and 5/4096 per step, and none of these constants is trained.

    Args:
        features: Number of channels.
        tau: Time constant of the potential; a number for all channels, or a pair to sample from log-uniformly.
        tau_ahp: Time constant of the current, likewise.
        strength: Current κ per spike, likewise.
        train: Train all three per channel, as `log_tau`, `log_tau_ahp` and `log_strength`; otherwise they are buffers.
        threshold: Potential V at which it fires.
        reset_gradient: Whether the spike in the reset carries a gradient: "detached" (no) or "full".
        surrogate: The derivative used for the spike.
    """

    states = ("u", "a")

    def __init__(
        self,
        features: int,
        *,
        tau: float | tuple[float, float] = 20.0,
        tau_ahp: float | tuple[float, float] = 700.0,
        strength: float | tuple[float, float] = 0.0118,
        train: bool = False,
        threshold: float = 1.0,
        reset_gradient: str = "detached",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        for name, value in (("tau", tau), ("tau_ahp", tau_ahp), ("strength", strength)):
            require_above("AHP", name, value, 0)
            self._keep_log(name, sample("AHP", name, value, features, log=True), train)
        require_real("AHP", "threshold", threshold)
        require_choice("AHP", "reset_gradient", reset_gradient, RESET_GRADIENTS)
        self.threshold, self.reset_gradient = threshold, reset_gradient

    def coefficients(self) -> dict[str, Tensor]:
        """α, ρ and κ, each [features], and the threshold []."""
        strength = self._value("strength")
        return {
            "alpha": torch.exp(-1 / self._value("tau")),
            "rho": torch.exp(-1 / self._value("tau_ahp")),
            "strength": strength,
            "threshold": strength.new_tensor(self.threshold),
        }

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        u = c.alpha * state.u + current - c.strength * state.a
        s = spike(u - c.threshold)
        return s, {"u": u * (1 - reset_spike(s, self.reset_gradient)), "a": c.rho * state.a + s}

    def extra_repr(self) -> str:
        parts = (f"{name}={show_range(self._value(name))}" for name in ("tau", "tau_ahp", "strength"))
        return f"{self.features}, {', '.join(parts)}, threshold={self.threshold:g}, {self.surrogate}"
