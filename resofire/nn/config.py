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
    """The settings of a `PRF`."""

    tau: float | tuple[float, float] = 2.0
    delta: float | tuple[float, float] = (1e-3, 1e-1)
    theta: float | tuple[float, float] = (0.0, 2 * math.pi)
    train_delta: bool = True
    train_theta: bool = True
    train_tau: bool = False
    threshold: float = 1.0
    reset: str = "none"
    reset_gradient: str = "detached"
    surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    backend: str = "auto"

    def build(self, features: int) -> PRF:
        return PRF(features, **_settings(self))


@dataclass(frozen=True)
class LIFConfig:
    """The settings of a `LIF`."""

    tau: float | tuple[float, float] = 2.0
    train_tau: bool = False
    threshold: float = 1.0
    reset: str = "soft"
    reset_gradient: str = "detached"
    surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    backend: str = "auto"

    def build(self, features: int) -> LIF:
        return LIF(features, **_settings(self))


def _settings(config: PRFConfig | LIFConfig) -> dict[str, Any]:
    # Not dataclasses.asdict, which would take the surrogate apart as well.
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
