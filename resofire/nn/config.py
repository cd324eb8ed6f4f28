"""What a neuron is told, as a value: blocks and models hold one of these and build their neurons from it.

The settings and their defaults are those of `PRF` and `LIF`, which also check them.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from ..ops import ATan, Surrogate
from .lif import LIF
from .prf import PRF


class NeuronConfig(Protocol):
    """What can build the temporal neuron of a block."""

    def build(self, features: int) -> nn.Module: ...


@dataclass(frozen=True)
class PRFConfig:
    """The settings of a `PRF`. Of τ, Δ and θ a number sets all channels, a pair is a range to draw from."""

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
    """Where it fires."""
    reset: str = "none"
    """none or soft."""
    reset_gradient: str = "detached"
    """Whether the spike in the reset carries a gradient: detached (no) or full."""
    surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    """The derivative that stands in for the spike's."""
    backend: str = "auto"
    """How it runs, see `resofire.ops.prf`."""
    even: bool = False
    """Spread the channels evenly over each range, in a random order, instead of drawing them."""
    gain: str = "delta"
    """What multiplies the current: delta, or unit (potentials of standard deviation 1, however long the memory)."""

    def build(self, features: int) -> PRF:
        return PRF(features, **_settings(self))


@dataclass(frozen=True)
class LIFConfig:
    """The settings of a `LIF`. A number sets τ of all channels, a pair is a range to draw from."""

    tau: float | tuple[float, float] = 2.0
    """Time constant, above 1: β = 1 - 1/τ."""
    train_tau: bool = False
    """Train τ per channel."""
    threshold: float = 1.0
    """Where it fires."""
    reset: str = "soft"
    """none, soft or hard."""
    reset_gradient: str = "detached"
    """Whether the spike in the reset carries a gradient: detached (no) or full."""
    surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    """The derivative that stands in for the spike's."""
    backend: str = "auto"
    """How it runs, see `resofire.ops.lif`."""

    def build(self, features: int) -> LIF:
        return LIF(features, **_settings(self))


def _settings(config: PRFConfig | LIFConfig) -> dict[str, Any]:
    # Not dataclasses.asdict, which would take the surrogate apart as well.
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
