"""Balanced resonate-and-fire neurons: damping that keeps the discrete oscillation stable, and a refractory trace.

S. Higuchi, S. Kairat, S. M. Bohté, S. Otte: "Balanced Resonate-and-Fire Neurons", ICML 2024, arXiv 2402.14603.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ...ops import ATan, Surrogate
from ...ops.checks import require_choice, require_real
from ..neuron import Neuron, in_full, require_above, require_range, sample, show_range

GAINS = ("unit", "delta")
# Below this, what is lost of an oscillation in one step counts as this: a gain of 0 would have no gradient.
_SMALLEST_LOSS = 1e-8


class BRF(Neuron):
    """Balanced resonate-and-fire neuron.

        b_t = p(ω) - b' - q_{t-1},   p(ω) = (-1 + √(1 - (δω)²)) / δ
        u_t = u_{t-1} + δ (b_t u_{t-1} - ω v_{t-1} + c_t)
        v_t = v_{t-1} + δ (ω u_{t-1} + b_t v_{t-1})
        s_t = [u_t ≥ V + q_{t-1}],   q_t = γ q_{t-1} + s_t

    p(ω) is the damping at which the discrete oscillation neither grows nor dies (the divergence bound); the refractory
    trace q raises the threshold and the damping after a spike. ω and b' are trained per channel; their absolute values
    count. S. Higuchi et al. 2024, arXiv 2402.14603; the default ranges are those of the authors' release.

    Args:
        features: Number of channels.
        omega: Angular frequency ω, below 1/δ; a number for all channels, or a pair to sample from uniformly.
        offset: Damping b' beyond the divergence bound, likewise.
        gamma: Decay of q.
        delta: Size δ of a time step.
        threshold: Potential V at which it fires.
        gain: Factor of the current: "unit", so that the stationary potential has standard deviation 1 for unit-variance
            white input, however long the memory; or "delta", which is the paper's δ and leaves the scale to the
            weights.
        surrogate: The derivative used for the spike.
    """

    states = ("u", "v", "q")
    omega: nn.Parameter
    offset: nn.Parameter
    delta: float

    def __init__(
        self,
        features: int,
        *,
        omega: float | tuple[float, float] = (5.0, 10.0),
        offset: float | tuple[float, float] = (0.0, 3.0),
        gamma: float = 0.9,
        delta: float = 0.01,
        threshold: float = 1.0,
        gain: str = "unit",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        _init_resonator(self, omega, offset, gamma=gamma, delta=delta, threshold=threshold, gain=gain)

    def coefficients(self) -> dict[str, Tensor]:
        """1 + δ(p(ω) - b'), δω and the gain, each [features]; δ, γ and the threshold, each []."""
        omega, offset = (in_full(value).abs() for value in (self.omega, self.offset))
        delta = self.delta
        angle = delta * omega
        # Beyond δω = 1 the bound is not defined; the frequency is kept below.
        root = torch.sqrt(torch.clamp(1 - angle**2, min=_SMALLEST_LOSS))
        keep = root - delta * offset
        if self.gain == "unit":
            # Var u = g²/2 (1 / (1 - |φ|²) + Re 1 / (1 - φ²)) with φ = keep + iδω, without cancellation.
            lost = torch.clamp(delta * offset * (2 * root - delta * offset), min=_SMALLEST_LOSS)
            real, imaginary = lost + 2 * angle**2, 2 * keep * angle
            gain = torch.sqrt(2 / (1 / lost + real / (real**2 + imaginary**2)))
        else:
            gain = torch.full_like(keep, delta)
        return {"keep": keep, "angle": angle, "gain": gain, **_shared(self, keep)}

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        keep = c.keep - c.delta * state.q
        u = keep * state.u - c.angle * state.v + c.gain * current
        v = c.angle * state.u + keep * state.v
        s = spike(u - c.threshold - state.q)
        return s, {"u": u, "v": v, "q": c.gamma * state.q + s}

    def extra_repr(self) -> str:
        return _show(self)


class BHRF(Neuron):
    """Balanced harmonic resonate-and-fire neuron: a damped harmonic oscillator whose velocity u fires.

        b_t = δω²/2 + b' + q_{t-1}
        v_t = v_{t-1} + δ u_{t-1}
        u_t = u_{t-1} + δ (c_t - 2 b_t u_{t-1} - ω² v_t)
        s_t = [u_t ≥ V + q_{t-1}],   q_t = γ q_{t-1} + s_t

    δω²/2 is its divergence bound. ω and b' are trained per channel; their absolute values count. S. Higuchi et al.
    2024, arXiv 2402.14603; the default ranges are those of the authors' release.

    Args:
        features: Number of channels.
        omega: Angular frequency ω; a number for all channels, or a pair to sample from uniformly.
        offset: Damping b' beyond the divergence bound, likewise.
        gamma: Decay of q.
        delta: Size δ of a time step.
        threshold: Velocity V at which it fires.
        gain: Factor of the current: "unit", so that the stationary velocity has standard deviation 1 for unit-variance
            white input, however long the memory; or "delta", which is the paper's δ and leaves the scale to the
            weights.
        surrogate: The derivative used for the spike.
    """

    states = ("u", "v", "q")
    omega: nn.Parameter
    offset: nn.Parameter
    delta: float

    def __init__(
        self,
        features: int,
        *,
        omega: float | tuple[float, float] = (10.0, 50.0),
        offset: float | tuple[float, float] = (1.0, 6.0),
        gamma: float = 0.9,
        delta: float = 0.01,
        threshold: float = 1.0,
        gain: str = "unit",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        _init_resonator(self, omega, offset, gamma=gamma, delta=delta, threshold=threshold, gain=gain)

    def coefficients(self) -> dict[str, Tensor]:
        """1 - 2δ(δω²/2 + b'), δω² and the gain, each [features]; δ, 2δ, γ and the threshold, each []."""
        omega, offset = (in_full(value).abs() for value in (self.omega, self.offset))
        delta = self.delta
        stiffness = delta * omega**2
        lost = 2 * delta * (stiffness / 2 + offset)
        if self.gain == "unit":
            # The velocity is an ARMA(2, 1) process; its variance is 2 g² / (lost (4 - 2 lost - δ²ω²)).
            rest = torch.clamp(4 - 2 * lost - delta * stiffness, min=_SMALLEST_LOSS)
            gain = torch.sqrt(torch.clamp(lost, min=_SMALLEST_LOSS) * rest / 2)
        else:
            gain = torch.full_like(lost, delta)
        shared = {"twice": lost.new_tensor(2 * delta), **_shared(self, lost)}
        return {"keep": 1 - lost, "stiffness": stiffness, "gain": gain, **shared}

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        v = state.v + c.delta * state.u
        u = (c.keep - c.twice * state.q) * state.u - c.stiffness * v + c.gain * current
        s = spike(u - c.threshold - state.q)
        return s, {"u": u, "v": v, "q": c.gamma * state.q + s}

    def extra_repr(self) -> str:
        return _show(self)


def _init_resonator(
    neuron: Any, omega: float | tuple[float, float], offset: float | tuple[float, float], *, gamma: float,
    delta: float, threshold: float, gain: str,
) -> None:  # fmt: skip
    """Check and keep the settings that BRF and BHRF share."""
    owner = type(neuron).__name__
    require_above(owner, "omega", omega, 0)
    require_range(owner, "offset", offset)
    require_above(owner, "delta", delta, 0)
    if not 0 <= gamma < 1:
        raise ValueError(f"{owner}: gamma must be from 0 up to, but not, 1, got {gamma!r}")
    require_real(owner, "threshold", threshold)
    require_choice(owner, "gain", gain, GAINS)
    highest = omega[1] if isinstance(omega, tuple) else omega
    # A harmonic oscillator diverges from δω = 2 on; its bound alone takes all velocity at δω = 1.
    if not highest * delta < 1:
        raise ValueError(f"{owner}: omega must be below 1/delta = {1 / delta:g}, got {omega!r}")
    neuron.omega = nn.Parameter(sample(owner, "omega", omega, neuron.features))
    neuron.offset = nn.Parameter(sample(owner, "offset", offset, neuron.features))
    neuron.gamma, neuron.delta, neuron.threshold, neuron.gain = gamma, delta, threshold, gain


def _shared(neuron: Any, like: Tensor) -> dict[str, Tensor]:
    return {name: like.new_tensor(getattr(neuron, name)) for name in ("delta", "gamma", "threshold")}


def _show(neuron: Any) -> str:
    ranges = (f"{name}={show_range(getattr(neuron, name).abs())} trained" for name in ("omega", "offset"))
    rest = f"gain={neuron.gain!r}, threshold={neuron.threshold:g}, {neuron.surrogate}"
    return f"{neuron.features}, {', '.join(ranges)}, {rest}"
