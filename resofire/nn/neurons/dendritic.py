"""A resonate-and-fire neuron with several resonators and a threshold that remembers (D-RF)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...ops import ATan, Surrogate, prf_coefficients
from ...ops.checks import require_choice, require_count, require_real
from ..neuron import Neuron, in_full, require_above, require_range, sample, show_range
from ..prf import GAINS, SMALLEST_THETA, unit_gain


class DRF(Neuron):
    """Dendritic resonate-and-fire neuron: a trained mix of n resonators, compared with an adaptive threshold.

        z_{i,t} = exp(Δ(-1/τ_i + iθ_i)) z_{i,t-1} + g_i c_t          i = 1 … n, z = u + ir
        h_t = Σ_i m_i u_{i,t}
        V_t = V + Σ_{k≤K} α_k o_{t-k},   o_t = [h_t ≥ V]
        s_t = [h_t ≥ V_t]

    o are the spikes that a constant threshold would have given; they carry no gradient, as in the paper's equations
    (15) and (16). Without reset and with n = 1, K = 0, m = 1 it is the PRF. Δ (per channel), τ, θ and the mix m (per
    channel and resonator) and α (shared, between 0 and 1) are trained. The parameters `log_tau`, `log_theta` and `mix`
    [n · features] hold the first resonator of all channels, then the second, and so on.

    D. Zhang, M. Zhang, S. Wang, J. Wang, W. Wei, Z. Ma, G. Wang, Y. Yang, H. Li: "Dendritic Resonate-and-Fire Neuron
    for Effective and Efficient Long Sequence Modeling", NeurIPS 2025, arXiv 2509.17186. Its capacitance γ_i is the gain
    g_i here, which the mix makes redundant as a parameter.

    Args:
        features: Number of channels.
        resonators: Number n of resonators per channel.
        history: Number K of steps that the threshold remembers; 0: a constant threshold.
        tau: Time constant of the decay; a number for all, or a pair to sample from log-uniformly.
        delta: Size of a time step, likewise.
        theta: Range of frequencies, cut into n bands; resonator i is sampled uniformly from band i. A number sets all.
        train_tau: Train τ.
        train_delta: Train Δ.
        train_theta: Train θ.
        threshold: Threshold V at rest.
        adaptation: Initial α.
        gain: Factor g of the current: "unit" gives each resonator standard deviation 1 for unit-variance white input,
            "delta" is Δ.
        evenly_spaced: Evenly spaced over each range, in random order, instead of sampled.
        surrogate: The derivative used for the spike.
    """

    def __init__(
        self,
        features: int,
        *,
        resonators: int = 4,
        history: int = 4,
        tau: float | tuple[float, float] = 2.0,
        delta: float | tuple[float, float] = (1e-3, 1e-1),
        theta: float | tuple[float, float] = (0.0, 2 * math.pi),
        train_tau: bool = True,
        train_delta: bool = True,
        train_theta: bool = True,
        threshold: float = 1.0,
        adaptation: float = 0.25,
        gain: str = "unit",
        evenly_spaced: bool = False,
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        require_count("DRF", "resonators", resonators)
        if isinstance(history, bool) or not isinstance(history, int) or history < 0:
            raise ValueError(f"DRF: history must be an integer of at least 0, got {history!r}")
        self.resonators, self.history = resonators, history
        super().__init__(features, surrogate=surrogate)
        require_above("DRF", "tau", tau, 0)
        require_above("DRF", "delta", delta, 0)
        require_real("DRF", "threshold", threshold)
        require_choice("DRF", "gain", gain, GAINS)
        if not 0 < adaptation < 1:
            raise ValueError(f"DRF: adaptation must be between 0 and 1, got {adaptation!r}")
        self._keep_log(
            "delta", sample("DRF", "delta", delta, features, log=True, evenly_spaced=evenly_spaced), train_delta
        )
        self._keep_log(
            "tau", sample("DRF", "tau", tau, resonators * features, log=True, evenly_spaced=evenly_spaced), train_tau
        )
        bands = [
            sample("DRF", "theta", band, features, evenly_spaced=evenly_spaced) for band in _bands(theta, resonators)
        ]
        self._keep_log("theta", torch.cat(bands).clamp(min=SMALLEST_THETA if train_theta else 0), train_theta)
        # One resonator alone starts as a PRF; several with the variance of one.
        mix = torch.randn(resonators * features) / math.sqrt(resonators) if resonators > 1 else torch.ones(features)
        self.mix = nn.Parameter(mix)
        start = math.log(adaptation / (1 - adaptation))
        self.adaptation = nn.Parameter(torch.full((history,), start)) if history else None
        self.threshold, self.gain = threshold, gain

    @property
    def states(self) -> tuple[str, ...]:  # type: ignore[override]
        """u1, r1, u2, r2, … of the resonators, and o1, o2, …, the would-be spikes, the last step's first."""
        pairs = (name for i in range(1, self.resonators + 1) for name in (f"u{i}", f"r{i}"))
        return (*pairs, *(f"o{k}" for k in range(1, self.history + 1)))

    def coefficients(self) -> dict[str, Tensor]:
        """phi_re, phi_im, gain and mix of each resonator by number, [features]; the α and the threshold, each []."""
        delta = self._value("delta")
        tau, theta = (self._value(name).view(self.resonators, -1) for name in ("tau", "theta"))
        mix = in_full(self.mix).view(self.resonators, -1)
        values = {"threshold": delta.new_tensor(self.threshold)}
        for i in range(self.resonators):
            phi_re, phi_im = prf_coefficients(delta, theta[i], tau[i])
            gain = delta if self.gain == "delta" else unit_gain(delta, theta[i], tau[i])
            named = {"phi_re": phi_re, "phi_im": phi_im, "gain": gain, "mix": mix[i]}
            values |= {f"{name}{i + 1}": value for name, value in named.items()}
        if self.adaptation is not None:
            alpha = torch.sigmoid(in_full(self.adaptation))
            values |= {f"alpha{k + 1}": value for k, value in enumerate(alpha.unbind())}
        return values

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        after, parts = {}, []
        for i in range(1, self.resonators + 1):
            u, r, phi_re, phi_im = (
                getattr(source, f"{name}{i}")
                for source, name in ((state, "u"), (state, "r"), (c, "phi_re"), (c, "phi_im"))
            )
            after[f"u{i}"] = phi_re * u - phi_im * r + getattr(c, f"gain{i}") * current
            after[f"r{i}"] = phi_im * u + phi_re * r
            parts.append(getattr(c, f"mix{i}") * after[f"u{i}"])
        h = parts[0]
        for part in parts[1:]:
            h = h + part
        above = h - c.threshold
        raised = above
        for k in range(1, self.history + 1):
            raised = raised - getattr(c, f"alpha{k}") * getattr(state, f"o{k}")
        s = spike(raised)
        if self.history:
            after["o1"] = spike(above).detach()
        for k in range(2, self.history + 1):
            after[f"o{k}"] = getattr(state, f"o{k - 1}")
        return s, after

    def extra_repr(self) -> str:
        ranges = (f"{name}={show_range(self._value(name))}" for name in ("delta", "theta", "tau"))
        size = f"{self.features}, resonators={self.resonators}, history={self.history}"
        return f"{size}, {', '.join(ranges)}, gain={self.gain!r}, threshold={self.threshold:g}, {self.surrogate}"


def _bands(theta: float | tuple[float, float], count: int) -> list[Any]:
    """The range in equal parts, one for each resonator."""
    require_range("DRF", "theta", theta)
    low, high = theta if isinstance(theta, tuple) else (theta, theta)
    if low < 0:
        raise ValueError(f"DRF: theta must not be negative, got {theta!r}")
    width = (high - low) / count
    return [(low + i * width, low + (i + 1) * width) for i in range(count)]
