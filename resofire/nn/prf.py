"""The PRF neuron as a module: Δ, θ and τ per channel, trained in log space."""

import math
from typing import Any

import torch
from torch import Tensor

from ..ops import ATan, PRFState, Surrogate, prf, prf_coefficients, prf_step
from ..ops.checks import require_choice, require_current
from ..ops.prf import RESETS
from ..ops.prf.reference import step as reference_step
from .counts import Count, count_neuron
from .neuron import Neuron, Trace, draw, require_above, require_settings, spread

GAINS = ("delta", "unit")
# A trained θ needs a logarithm; a draw from a range that begins at 0 stays this far away from it.
_SMALLEST_THETA = 1e-6


def unit_gain(delta: Tensor, theta: Tensor, tau: Tensor) -> Tensor:
    """The gain g, [N], that gives the real potential of a PRF variance 1 for white input of variance 1.

    Var u = g² Σ_k (|φ|^k cos kΔθ)² = g²/2 · [1 / (1 - |φ|²) + Re 1 / (1 - φ²)], written so that neither term
    cancels when the memory is long or the frequency low.
    """
    lost = -torch.expm1(-2 * delta / tau)  # 1 - |φ|²
    angle = delta * theta
    turned = 2 * (1 - lost) * torch.sin(angle) ** 2  # |φ|² (1 - cos 2Δθ)
    real = lost + turned  # Re(1 - φ²)
    imaginary = (1 - lost) * torch.sin(2 * angle)
    return torch.sqrt(2 / (1 / lost + real / (real**2 + imaginary**2)))


class PRF(Neuron):
    """Parallel Resonate-and-Fire neuron; the equation is in `resofire.ops.prf`.

    tau, delta, theta    a number sets all channels; a pair is a range to draw from (τ and Δ log-uniform, θ uniform)
    train_*              trained ones are the parameters log_delta, log_theta, log_tau [features], the others the
                         buffers delta, theta, tau; an untrained θ may be 0, which switches resonance off
    even                 spread the channels evenly over each range, in a random order, instead of drawing them
    gain                 what the current is multiplied by: "delta", as in the paper, or "unit", so that the stationary
                         real potential has standard deviation 1 for unit-variance white input, however long the memory
    """

    def __init__(
        self,
        features: int,
        *,
        tau: float | tuple[float, float] = 2.0,
        delta: float | tuple[float, float] = (1e-3, 1e-1),
        theta: float | tuple[float, float] = (0.0, 2 * math.pi),
        train_delta: bool = True,
        train_theta: bool = True,
        train_tau: bool = False,
        threshold: float = 1.0,
        reset: str = "none",
        reset_gradient: str = "detached",
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
        backend: str = "auto",
        even: bool = False,
        gain: str = "delta",
    ) -> None:
        super().__init__(features)
        require_settings("prf", "PRF", threshold, reset, RESETS, reset_gradient, surrogate, backend)
        if not isinstance(even, bool):
            raise ValueError(f"PRF: even must be True or False, got {even!r}")
        require_choice("PRF", "gain", gain, GAINS)
        require_above("PRF", "delta", delta, 0)
        require_above("PRF", "tau", tau, 0)
        frequencies = draw("PRF", "theta", theta, features, even=even)
        if train_theta:
            if not isinstance(theta, tuple):
                require_above("PRF", "theta", theta, 0)
            elif theta[0] < 0:
                raise ValueError(f"PRF: theta must not be negative to be trained, got {theta!r}")
            frequencies = frequencies.clamp(min=_SMALLEST_THETA)
        self._hold("delta", draw("PRF", "delta", delta, features, log=True, even=even), train_delta)
        self._hold("theta", frequencies, train_theta)
        self._hold("tau", draw("PRF", "tau", tau, features, log=True, even=even), train_tau)
        self.threshold, self.reset, self.reset_gradient = threshold, reset, reset_gradient
        self.surrogate, self.backend, self.gain = surrogate, backend, gain

    def coefficients(self) -> tuple[Tensor, Tensor, Tensor]:
        """φ_re, φ_im and the gain of the current (Δ, see `gain`), each [features], as the operator takes them."""
        delta, theta, tau = (self._held(name) for name in ("delta", "theta", "tau"))
        phi_re, phi_im = prf_coefficients(delta, theta, tau)
        return phi_re, phi_im, delta if self.gain == "delta" else unit_gain(delta, theta, tau)

    def rows(self) -> Tensor:
        given = self.coefficients()
        return torch.stack([*given, torch.full_like(given[2], self.threshold)])

    def scan(self, x: Tensor, state: PRFState | None = None, **options: Any) -> tuple[Tensor, PRFState]:
        """A whole sequence; `cu_seqlens` and `reverse` are options, as in `resofire.ops.prf`."""
        spikes, last = prf(
            x, *self.coefficients(), threshold=self.threshold, reset=self.reset, reset_gradient=self.reset_gradient,
            surrogate=self.surrogate, state=state, backend=self.backend, **options,
        )  # fmt: skip
        return self._fired(spikes), last

    def step(self, x: Tensor, state: PRFState | None) -> tuple[Tensor, PRFState]:
        spikes, last = prf_step(
            x, *self.coefficients(), state, threshold=self.threshold, reset=self.reset, surrogate=self.surrogate
        )
        return self._fired(spikes), last

    def init_state(self, batch: int) -> PRFState:
        like = self._held("delta")
        return PRFState(like.new_zeros(batch, self.features), like.new_zeros(batch, self.features))

    @torch.no_grad()
    def trace(self, x: Tensor) -> Trace:
        require_current("PRF.trace", x, "B, T, N")
        rows = self.rows()
        u = r = x.new_zeros(x.shape[0], self.features)
        seen = []
        for t in range(x.shape[1]):
            spikes, u, r, peak = reference_step(x[:, t], rows, u, r, self.reset, False, self.surrogate)
            seen.append(torch.stack((spikes, peak, r)))
        return Trace(*torch.stack(seen, 2))

    def extra_repr(self) -> str:
        parts = [str(self.features)]
        for name in ("delta", "theta", "tau"):
            kept = "trained" if f"log_{name}" in self._parameters else "fixed"
            parts.append(f"{name}={spread(self._held(name))} {kept}")
        if self.gain != "delta":
            parts.append(f"gain={self.gain!r}")
        return ", ".join([*parts, f"threshold={self.threshold:g}", f"reset={self.reset!r}", f"{self.surrogate}"])

    def count(self, name: str, steps: float) -> Count:
        """Count the plain equation of `resofire.ops.prf`; a soft reset is one addition more, whatever the spike."""
        operations = {"multiply": 5, "add": 3 + (self.reset == "soft"), "compare": 1}
        return count_neuron(name, self.features, steps, operations, coefficients=3, states=2)
