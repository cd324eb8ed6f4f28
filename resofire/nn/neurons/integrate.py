"""Variants of the LIF with trained constants: PLIF, GLIF and the two-compartment TC-LIF."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...ops import ATan, Surrogate
from ...ops.checks import require_choice, require_real
from ..folded import Array, Neurons, temporal, to_array
from ..neuron import Neuron, in_full, require_above

RESET_GRADIENTS = ("detached", "full")


def reset_spike(s: Any, reset_gradient: str) -> Any:
    """The spike as a reset sees it: with its gradient ("full") or without ("detached")."""
    return s if reset_gradient == "full" else s.detach()


def logit(owner: str, name: str, value: float) -> float:
    """The logarithm of the odds, by which a quantity from 0 to 1 is trained."""
    require_real(owner, name, value)
    if not 0 < value < 1:
        raise ValueError(f"{owner}: {name} must be between 0 and 1, got {value!r}")
    return math.log(value / (1 - value))


class PLIF(Neuron):
    """Parametric LIF: one trained time constant for all channels, decayed input, hard reset.

        u_t = u_{t-1} + (c_t - u_{t-1}) / τ,   1/τ = σ(w)
        s_t = [u_t ≥ V],   then u_t = 0 where s_t = 1

    W. Fang, Z. Yu, Y. Chen, T. Masquelier, T. Huang, Y. Tian: "Incorporating Learnable Membrane Time Constant to
    Enhance Learning of Spiking Neural Networks", ICCV 2021, arXiv 2007.05785. `nn.LIF(train_tau=True)` is a relative
    with a time constant for each channel, undecayed input and soft reset.

    Args:
        features: Number of channels.
        tau: Initial time constant, above 1. Trained as the parameter `w` [].
        threshold: Potential V at which it fires.
        reset_gradient: Whether the spike in the reset carries a gradient: "detached" (no) or "full".
        surrogate: The derivative used for the spike.
    """

    states = ("u",)

    def __init__(
        self,
        features: int,
        *,
        tau: float = 2.0,
        threshold: float = 1.0,
        reset_gradient: str = "detached",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        require_above("PLIF", "tau", tau, 1)
        require_real("PLIF", "threshold", threshold)
        require_choice("PLIF", "reset_gradient", reset_gradient, RESET_GRADIENTS)
        self.w = nn.Parameter(torch.tensor(-math.log(tau - 1)))
        self.threshold, self.reset_gradient = threshold, reset_gradient

    def coefficients(self) -> dict[str, Tensor]:
        """1/τ [] and the threshold []."""
        rate = torch.sigmoid(in_full(self.w))
        return {"rate": rate, "threshold": rate.new_tensor(self.threshold)}

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        u = state.u + c.rate * (current - state.u)
        s = spike(u - c.threshold)
        return s, {"u": u * (1 - reset_spike(s, self.reset_gradient))}

    @torch.no_grad()
    def fold(self, a: Array, b: Array) -> Neurons:
        """These neurons as arrays, reading a z + b; see `resofire.nn.folded`. They are LIF neurons with a gain."""
        rate = np.full(self.features, to_array(torch.sigmoid(in_full(self.w))))
        zero = np.zeros_like(rate)
        return temporal(
            "lif", phi_re=1 - rate, phi_im=zero, gain=rate, threshold=self.threshold, reset="hard", a=a, b=b
        )


class GLIF(Neuron):
    """Gated LIF: trained gates between exponential and linear leak, scaled and plain input, hard and soft reset.

        v_t = u_{t-1} - (1-α) λ + (1 - β(1-g)) c_t
        s_t = [v_t ≥ V]
        u_t = (1 - α(1-κ)) v_t (1 - γ s_t) - (1-γ) ρ s_t

    The state u is the potential after leak and reset. The gates α, β, γ, the decay κ, the linear leak λ, the
    conductance g, the threshold V and the soft reset ρ are trained per channel, each as a logit (`logit_alpha`, …), so
    that all stay between 0 and 1.

    X. Yao, F. Li, Z. Mo, J. Cheng: "GLIF: A Unified Gated Leaky Integrate-and-Fire Neuron for Spiking Neural Networks",
    NeurIPS 2022, arXiv 2210.13768. There, g is one number for each of a few time steps; here it is constant in time, so
    that sequences may have any length, and λ starts at V/8, which is the original V/2T for T = 4.

    Args:
        features: Number of channels.
        decay: Initial κ.
        leak: Initial λ.
        threshold: Initial V.
        reset: Initial ρ.
        conductance: Initial g.
        spread: The logits of α, β and γ start uniformly between -spread and spread: gates half open.
        reset_gradient: Whether the spike in the reset carries a gradient: "detached" (no) or "full".
        surrogate: The derivative used for the spike.
    """

    states = ("u",)

    def __init__(
        self,
        features: int,
        *,
        decay: float = 0.25,
        leak: float = 0.0625,
        threshold: float = 0.5,
        reset: float = 0.5,
        conductance: float = 0.5,
        spread: float = 0.1,
        reset_gradient: str = "full",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        require_choice("GLIF", "reset_gradient", reset_gradient, RESET_GRADIENTS)
        if not spread >= 0:
            raise ValueError(f"GLIF: spread must be at least 0, got {spread!r}")
        for name in ("alpha", "beta", "gamma"):
            setattr(self, f"logit_{name}", nn.Parameter(torch.empty(features).uniform_(-spread, spread)))
        constants = {
            "decay": decay, "leak": leak, "threshold": threshold, "reset": reset, "conductance": conductance
        }  # fmt: skip
        for name, value in constants.items():
            setattr(self, f"logit_{name}", nn.Parameter(torch.full((features,), logit("GLIF", name, value))))
        self.reset_gradient = reset_gradient

    def coefficients(self) -> dict[str, Tensor]:
        """The factor on the potential, linear leak, input gain, γ, soft reset and threshold, each [features]."""

        def gate(name: str) -> Tensor:
            return torch.sigmoid(in_full(self.get_parameter(f"logit_{name}")))

        alpha, gamma = gate("alpha"), gate("gamma")
        return {
            "keep": 1 - alpha * (1 - gate("decay")),
            "leak": (1 - alpha) * gate("leak"),
            "gain": 1 - gate("beta") * (1 - gate("conductance")),
            "gamma": gamma,
            "soft": (1 - gamma) * gate("reset"),
            "threshold": gate("threshold"),
        }

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        v = state.u - c.leak + c.gain * current
        s = spike(v - c.threshold)
        z = reset_spike(s, self.reset_gradient)
        return s, {"u": c.keep * v * (1 - c.gamma * z) - c.soft * z}


class TCLIF(Neuron):
    """Two-compartment LIF: a dendrite d that integrates the input and a soma u that fires, coupled both ways.

        d_t = d_{t-1} + β₁ u_{t-1} + c_t
        u_t = u_{t-1} + β₂ d_t
        s_t = [u_t ≥ V],   then u_t = u_t - V s_t and d_t = d_t - γ s_t

    with β₁ = -σ(b₁) and β₂ = σ(b₂), both trained, one pair for all channels. As in the authors' release, the dendrite
    sees the soma after its reset.

    S. Zhang, Q. Yang, C. Ma, J. Wu, H. Li, K. C. Tan: "TC-LIF: A Two-Compartment Spiking Neuron Model for Long-Term
    Sequential Modelling", AAAI 2024, arXiv 2308.13250.

    Args:
        features: Number of channels.
        beta1: Initial β₁, between -1 and 0. Trained as the parameter `b1` [].
        beta2: Initial β₂, between 0 and 1. Trained as the parameter `b2` [].
        gamma: What a spike takes from the dendrite.
        threshold: Potential V of the soma at which it fires.
        reset_gradient: Whether the spike in the reset carries a gradient: "detached" (no) or "full".
        surrogate: The derivative used for the spike.
    """

    states = ("d", "u")

    def __init__(
        self,
        features: int,
        *,
        beta1: float = -0.5,
        beta2: float = 0.5,
        gamma: float = 0.5,
        threshold: float = 1.0,
        reset_gradient: str = "full",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        require_real("TCLIF", "gamma", gamma)
        require_real("TCLIF", "threshold", threshold)
        require_choice("TCLIF", "reset_gradient", reset_gradient, RESET_GRADIENTS)
        if not -1 < beta1 < 0:
            raise ValueError(f"TCLIF: beta1 must be between -1 and 0, got {beta1!r}")
        self.b1 = nn.Parameter(torch.tensor(logit("TCLIF", "beta1", -beta1)))
        self.b2 = nn.Parameter(torch.tensor(logit("TCLIF", "beta2", beta2)))
        self.gamma, self.threshold, self.reset_gradient = gamma, threshold, reset_gradient

    def coefficients(self) -> dict[str, Tensor]:
        """β₁, β₂, γ and the threshold, each []."""
        beta1, beta2 = -torch.sigmoid(in_full(self.b1)), torch.sigmoid(in_full(self.b2))
        gamma, threshold = beta1.new_tensor(self.gamma), beta1.new_tensor(self.threshold)
        return {"beta1": beta1, "beta2": beta2, "gamma": gamma, "threshold": threshold}

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        d = state.d + c.beta1 * state.u + current
        u = state.u + c.beta2 * d
        s = spike(u - c.threshold)
        z = reset_spike(s, self.reset_gradient)
        return s, {"d": d - c.gamma * z, "u": u - c.threshold * z}
