"""The PRF neuron as a module: Δ, θ and τ per channel, trained in log space."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..ops import ATan, PRFState, Surrogate, explain, prf, prf_coefficients, prf_step
from ..ops.checks import require_choice
from ..ops.prf import RESETS
from ..ops.prf.reference import dynamics
from .config import NeuronConfig, added, renamed, settings_of
from .counts import Count, count_neuron
from .folded import Array, Neurons, temporal, to_array
from .neuron import Neuron, require_above, require_settings, sample, show_range

GAINS = ("delta", "unit")
# A trained θ is kept as its logarithm; a value sampled from a range that begins at 0 stays this far away from it.
SMALLEST_THETA = 1e-6


@dataclass(frozen=True)
class PRFConfig(NeuronConfig):
    """The settings of a `PRF`. Of τ, Δ and θ a number sets all channels, a pair is a range to sample from."""

    tau: float | tuple[float, float] = 2.0
    """Time constant of the decay."""
    delta: float | tuple[float, float] = (1e-3, 1e-1)
    """Size of a time step."""
    theta: float | tuple[float, float] = (0.0, 2 * math.pi)
    """Frequency; 0 (not trained) switches resonance off."""
    train_delta: bool = True
    """Train Δ per channel."""
    train_theta: bool = True
    """Train θ per channel."""
    train_tau: bool = False
    """Train τ per channel."""
    threshold: float = 1.0
    """Potential at which it fires."""
    reset: str = "none"
    """none or soft."""
    reset_gradient: str = "detached"
    """Whether the spike in the reset carries a gradient: detached (no) or full."""
    surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    """The derivative used for the spike."""
    backend: str = "auto"
    """Backend, see `resofire.ops.prf`."""
    evenly_spaced: bool = renamed(False, saved_as="even")
    """Evenly spaced over each range, in random order, instead of sampled."""
    gain: str = "delta"
    """Factor of the current: delta, or unit (potentials of standard deviation 1, however long the memory)."""
    resonators: int = added(1)
    """Resonators per neuron; more than 1 make a `DRF`, with a trained mix."""
    history: int = added(0)
    """Steps that the threshold remembers (adaptive threshold); more than 0 make a `DRF`."""
    period: float | None = added(None)
    """Steps of a period known in advance, such as a row of an image: frequencies start at its harmonics."""

    def build(self, features: int) -> Neuron:
        settings = settings_of(self)
        if (self.resonators, self.history) == (1, 0):
            return PRF(features, **settings)
        # DRF is built on this module.
        from .neurons import DRF

        for name, only in (("reset", "none"), ("backend", "auto"), ("period", None)):
            if settings.pop(name) != only:
                value = getattr(self, name)
                raise ValueError(f"PRF: {name} must be {only!r} with resonators or history, got {value!r}")
        del settings["reset_gradient"]
        return DRF(features, **settings)


def unit_gain(delta: Tensor, theta: Tensor, tau: Tensor) -> Tensor:
    """The gain g, [N], that gives the real potential of a PRF variance 1 for white input of variance 1.

    Var u = g² Σ_k (|φ|^k cos kΔθ)² = g²/2 · [1 / (1 - |φ|²) + Re 1 / (1 - φ²)] with φ = e^{Δ(-1/τ + iθ)}, computed so
    that neither term cancels when the memory is long or the frequency low.
    """
    lost = -torch.expm1(-2 * delta / tau)  # 1 - |φ|²
    angle = delta * theta
    real = lost + 2 * (1 - lost) * torch.sin(angle) ** 2  # Re(1 - φ²)
    imaginary = (1 - lost) * torch.sin(2 * angle)
    return torch.sqrt(2 / (1 / lost + real / (real**2 + imaginary**2)))


class PRF(Neuron, config_class=PRFConfig):
    """Parallel Resonate-and-Fire neuron; the equation is in `resofire.ops.prf`.

    Trained quantities are the parameters `log_delta`, `log_theta`, `log_tau` [features], the others the buffers
    `delta`, `theta`, `tau`.

    Args:
        features: Number of channels.
        tau: Time constant of the decay; a number for all channels, or a pair to sample from log-uniformly.
        delta: Size of a time step, likewise.
        theta: Frequency, likewise, but sampled uniformly; 0 switches resonance off and cannot be trained.
        train_delta: Train Δ.
        train_theta: Train θ.
        train_tau: Train τ.
        threshold: Potential V at which it fires.
        reset: "none" or "soft".
        reset_gradient: Whether the spike in the reset carries a gradient: "detached" (no) or "full".
        surrogate: The derivative used for the spike.
        backend: One of those of `resofire.ops.prf`.
        evenly_spaced: Evenly spaced over each range, in random order, instead of sampled. Better where inputs come in
            a random order, not elsewhere (docs/experiments/initial-delta-theta.md).
        gain: Factor of the current: "delta", as in the paper, or "unit", so that the stationary real potential has
            standard deviation 1 for unit-variance white input, however long the memory.
        resonators: Resonators per neuron; more than 1 make a `DRF`, with a trained mix.
        history: Steps that the threshold remembers (adaptive threshold); more than 0 make a `DRF`.
        period: Steps of a period known in advance, such as a row of an image: the initial angle θΔ of a step is rounded
            to the nearest multiple of 2π/period.

    Example:
        >>> layer = PRF(128, delta=(0.001, 1.0), gain="unit")
        >>> spikes = layer(torch.randn(16, 10_000, 128))
    """

    states = PRFState._fields

    # `features` has a default because copies are made without arguments.
    def __new__(cls, features: Any = None, *, resonators: int = 1, history: int = 0, **settings: Any) -> Any:
        if cls is PRF and (resonators, history) != (1, 0):
            return PRFConfig(resonators=resonators, history=history, **settings).build(features)
        return super().__new__(cls)

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
        evenly_spaced: bool = False,
        gain: str = "delta",
        resonators: int = 1,
        history: int = 0,
        period: float | None = None,
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        for name, value, only in (("resonators", resonators, 1), ("history", history, 0)):
            if value != only:
                owner = type(self).__name__
                raise ValueError(f"{owner}: {name} must be {only} in a subclass of PRF, got {value!r}; see nn.DRF")
        require_settings(
            "prf", "PRF", threshold=threshold, reset=reset, resets=RESETS, reset_gradient=reset_gradient,
            surrogate=surrogate, backend=backend,
        )  # fmt: skip
        if not isinstance(evenly_spaced, bool):
            raise ValueError(f"PRF: evenly_spaced must be True or False, got {evenly_spaced!r}")
        require_choice("PRF", "gain", gain, GAINS)
        require_above("PRF", "delta", delta, 0)
        require_above("PRF", "tau", tau, 0)
        if period is not None and (type(period) not in (int, float) or not 0 < period < math.inf):
            raise ValueError(f"PRF: period must be a positive number of steps or None, got {period!r}")
        frequencies = sample("PRF", "theta", theta, features, evenly_spaced=evenly_spaced)
        if train_theta and isinstance(theta, tuple) and theta[0] < 0:
            raise ValueError(f"PRF: theta must not be negative to be trained, got {theta!r}")
        if train_theta and not isinstance(theta, tuple):
            require_above("PRF", "theta", theta, 0)
        steps = sample("PRF", "delta", delta, features, log=True, evenly_spaced=evenly_spaced)
        if period is not None:
            frequencies = (frequencies * steps * period / (2 * math.pi)).round() * 2 * math.pi / (period * steps)
        if train_theta:
            frequencies = frequencies.clamp(min=SMALLEST_THETA)
        self._keep_log("delta", steps, train_delta)
        self._keep_log("theta", frequencies, train_theta)
        self._keep_log("tau", sample("PRF", "tau", tau, features, log=True, evenly_spaced=evenly_spaced), train_tau)
        self.threshold, self.reset, self.reset_gradient = threshold, reset, reset_gradient
        self.backend, self.gain = backend, gain

    def coefficients(self) -> dict[str, Tensor]:
        """φ_re, φ_im and the gain of the current (Δ, see `gain`), each [features], and the threshold []."""
        delta, theta, tau = (self._value(name) for name in ("delta", "theta", "tau"))
        phi_re, phi_im = prf_coefficients(delta, theta, tau)
        gain = delta if self.gain == "delta" else unit_gain(delta, theta, tau)
        return {"phi_re": phi_re, "phi_im": phi_im, "gain": gain, "threshold": delta.new_tensor(self.threshold)}

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        return dynamics(current, state, c, spike, reset=self.reset, full=self.reset_gradient == "full")

    def scan(
        self, x: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, PRFState]:
        self._require_channels(x)
        spikes, last = prf(x, **self._call(), state=state, backend=self.backend, cu_seqlens=cu_seqlens, reverse=reverse)
        return self._report_spikes(spikes), last

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, PRFState]:
        self._require_channels(x)
        options = self._call()
        del options["reset_gradient"]
        spikes, last = prf_step(x, state=state, **options)
        return self._report_spikes(spikes), last

    @property
    def state_type(self) -> Any:
        return PRFState

    def explain(self, x: Tensor) -> str:
        self._require_channels(x)
        return str(explain("prf", x, **self._call(), backend=self.backend))

    def _call(self) -> dict[str, Any]:
        c = self.coefficients()
        # The operator's `delta` is the factor on the current.
        return {
            "phi_re": c["phi_re"], "phi_im": c["phi_im"], "delta": c["gain"], "threshold": self.threshold,
            "reset": self.reset, "reset_gradient": self.reset_gradient, "surrogate": self.surrogate,
        }  # fmt: skip

    def extra_repr(self) -> str:
        parts = [str(self.features)]
        for name in ("delta", "theta", "tau"):
            trained = "trained" if f"log_{name}" in self._parameters else "fixed"
            parts.append(f"{name}={show_range(self._value(name))} {trained}")
        if self.gain != "delta":
            parts.append(f"gain={self.gain!r}")
        return ", ".join([*parts, f"threshold={self.threshold:g}", f"reset={self.reset!r}", f"{self.surrogate}"])

    @torch.no_grad()
    def fold(self, a: Array, b: Array) -> Neurons:
        """These neurons as arrays, reading a z + b; see `resofire.nn.folded`."""
        phi_re, phi_im, gain = (to_array(self.coefficients()[name]) for name in ("phi_re", "phi_im", "gain"))
        return temporal(
            "prf", phi_re=phi_re, phi_im=phi_im, gain=gain, threshold=self.threshold, reset=self.reset, a=a, b=b
        )

    def count(self, name: str, steps: float) -> Count:
        """Count the plain equation of `resofire.ops.prf`; a soft reset is one addition more, whatever the spike."""
        operations = {"multiply": 5, "add": 3 + (self.reset == "soft"), "compare": 1}
        return count_neuron(name, self.features, steps, operations, coefficients=3, states=2)
