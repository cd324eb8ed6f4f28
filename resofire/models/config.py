"""What the configs of all networks share. A config is a frozen value; it is checked when it is made."""

from dataclasses import dataclass, fields
from numbers import Real
from typing import ClassVar

from ..nn import LIFConfig, PRFConfig
from ..nn.sdtcm import AMPLITUDES, BACKENDS, NORMS, require_clock, require_share
from ..ops import ATan, Surrogate
from ..ops.checks import require_choice, require_real

POOLS = ("mean", "last", "none")


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The settings of every network."""

    neuron: PRFConfig | LIFConfig = PRFConfig()  # noqa: RUF009 - frozen
    """The temporal neuron."""
    pool: str = "mean"
    """How the stream becomes one vector: mean over the true length, last step, or none: logits at every step."""
    rate_target: float | None = None
    """Draw the fire rate of each layer towards this, see `Network.penalised`."""
    rate_weight: float = 1.0
    """How hard."""
    backend: str = "auto"
    """How the Linears on spikes run, or whole blocks, see `nn.SDTCM`; the neuron has a backend of its own."""
    _backends: ClassVar[tuple[str, ...]] = ("auto", "events", "reference")

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for item in fields(self):
            if item.type is bool and not isinstance(getattr(self, item.name), bool):
                raise ValueError(f"{owner}: {item.name} must be True or False, got {getattr(self, item.name)!r}")
        if isinstance(self.neuron, type) or not callable(getattr(self.neuron, "build", None)):
            raise ValueError(
                f"{owner}: neuron must be settings such as PRFConfig() or LIFConfig(), got {self.neuron!r}"
            )
        require_choice(owner, "pool", self.pool, POOLS)
        require_choice(owner, "backend", self.backend, self._backends)
        if self.rate_target is not None and not (_real(self.rate_target) and 0 <= self.rate_target <= 1):
            raise ValueError(f"{owner}: rate_target must be None or from 0 to 1, got {self.rate_target!r}")
        if not _real(self.rate_weight) or not 0 <= self.rate_weight < float("inf"):
            raise ValueError(f"{owner}: rate_weight must be a number of at least 0, got {self.rate_weight!r}")

    @property
    def pairs(self) -> bool:
        """Whether the network compares two sequences."""
        return False


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(NetworkConfig):
    """The settings of an `Encoder`: SD-TCM blocks, see `nn.SDTCM`. Exactly one of inputs and vocabulary is given."""

    features: int
    """Channels of the stream."""
    depth: int
    """Blocks."""
    inputs: int | None = None
    """Channels of real-valued input."""
    vocabulary: int | None = None
    """Number of different tokens."""
    bidirectional: bool = False
    """A second neuron in each block walks from the end."""
    norm: str = "batch"
    """batch or none."""
    prenorm: bool = True
    """Whether the norm stands before the neuron or behind the block."""
    last_norm: bool | None = None
    """A batch norm behind the last block; None: if the blocks are pre-norm with norm batch."""
    dropout: float = 0.0
    """The share of time steps that each branch drops in training."""
    amplitude: str = "sn"
    """Which spikes have a trained size: those of the spatial neuron sn, of the temporal one tn, both or none."""
    spatial_threshold: float = 0.5
    """Where the spatial neuron fires."""
    spatial_surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    """The derivative that stands in for its spike's."""
    clock: float = 0.0
    """How far from rest each PRF begins a sequence, before training: how blocks can tell time, see `nn.SDTCM`."""
    _backends: ClassVar[tuple[str, ...]] = BACKENDS

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        require_count(owner, "features", self.features)
        require_count(owner, "depth", self.depth)
        if (self.inputs is None) == (self.vocabulary is None):
            raise ValueError(
                f"{owner}: exactly one of inputs and vocabulary must be given, got inputs={self.inputs!r} and "
                f"vocabulary={self.vocabulary!r}"
            )
        if self.inputs is not None:
            require_count(owner, "inputs", self.inputs)
        if self.vocabulary is not None:
            require_count(owner, "vocabulary", self.vocabulary)
        require_choice(owner, "norm", self.norm, NORMS)
        require_choice(owner, "amplitude", self.amplitude, AMPLITUDES)
        if self.last_norm is not None and not isinstance(self.last_norm, bool):
            raise ValueError(f"{owner}: last_norm must be None, True or False, got {self.last_norm!r}")
        require_share(owner, "dropout", self.dropout)
        require_real(owner, "spatial_threshold", self.spatial_threshold)
        require_clock(owner, self.clock, self.norm, self.prenorm)
        if self.clock > 0 and isinstance(self.neuron, LIFConfig):
            raise ValueError(f"{owner}: clock must be 0 unless neuron is a PRF, got {self.clock!r} and {self.neuron!r}")

    @property
    def has_last_norm(self) -> bool:
        return (self.norm == "batch" and self.prenorm) if self.last_norm is None else self.last_norm


def require_count(owner: str, name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{owner}: {name} must be a positive integer, got {value!r}")


def _real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
