"""Base classes of the configs of networks. A config is frozen; its values are checked when it is created."""

from dataclasses import dataclass, fields
from numbers import Real
from typing import TYPE_CHECKING, ClassVar

from ..nn import Config, NeuronConfig, PRFConfig
from ..nn.config import added, as_config, renamed
from ..nn.folded import pool_fault
from ..nn.sdtcm import AMPLITUDES, BACKENDS, NORMS, SPATIAL, require_positional_bias, require_share
from ..ops import ATan, Surrogate
from ..ops.checks import require_choice, require_count, require_real

if TYPE_CHECKING:
    from .network import Network

# Pools of training; streams also have a window, see `deploy`.
POOLS = ("mean", "last", "none", "leaky")


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Config):
    """The settings of every network. `build()` makes it.

    A network of your own has a frozen subclass of this as its config, with `build`, `inputs` or `vocabulary`, and
    `classes`, as attributes or properties.
    """

    neuron: NeuronConfig = PRFConfig()  # noqa: RUF009 - frozen
    """The temporal neuron: a config such as `PRFConfig()`, or a Neuron class, which means its defaults. On the command
    line the class is chosen by its name in lower case: --model.neuron bhrf --model.neuron.gamma 0.8."""
    pool: str = "mean"
    """Pooling over time: mean over the true length, last step, leaky (a mean that forgets), or none: every step."""
    rate_target: float | None = None
    """Regularise the fire rate of each layer towards this value, see `Network.penalised`."""
    rate_weight: float = 1.0
    """Weight of that penalty, or of the one of rate_limit."""
    backend: str = "auto"
    """Backend of the Linears on spikes or of whole blocks, see `nn.SDTCM`; the neuron has its own."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes, for reports, streams and exported files."""
    pool_steps: int | None = None
    """Steps that the pool leaky remembers: those of age t count (1 - 1/pool_steps)^t."""
    rate_limit: float | None = added(None)
    """Penalise a mean fire rate over all layers above this value, see `Network.penalised`."""
    _backends: ClassVar[tuple[str, ...]] = ("auto", "events", "reference")

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        for item in fields(self):
            if item.type is bool and not isinstance(getattr(self, item.name), bool):
                raise ValueError(f"{owner}: {item.name} must be True or False, got {getattr(self, item.name)!r}")
        object.__setattr__(self, "neuron", as_config(owner, "neuron", self.neuron))
        require_choice(owner, "pool", self.pool, POOLS)
        fault = pool_fault(self.pool, self.pool_steps)
        if fault:
            raise ValueError(f"{owner}: {fault}")
        require_choice(owner, "backend", self.backend, self._backends)
        if self.rate_target is not None and not (_real(self.rate_target) and 0 <= self.rate_target <= 1):
            raise ValueError(f"{owner}: rate_target must be None or from 0 to 1, got {self.rate_target!r}")
        if self.rate_limit is not None and not (_real(self.rate_limit) and 0 < self.rate_limit <= 1):
            raise ValueError(f"{owner}: rate_limit must be None or above 0 and at most 1, got {self.rate_limit!r}")
        if self.rate_target is not None and self.rate_limit is not None:
            raise ValueError(
                f"{owner}: one of rate_target and rate_limit must be None, got {self.rate_target!r} and "
                f"{self.rate_limit!r}"
            )
        if not _real(self.rate_weight) or not 0 <= self.rate_weight < float("inf"):
            raise ValueError(f"{owner}: rate_weight must be a number of at least 0, got {self.rate_weight!r}")
        names = self.class_names
        if names is not None and not (
            isinstance(names, tuple) and all(isinstance(each, str) for each in names) and len({*names}) == len(names)
        ):
            raise ValueError(f"{owner}: class_names must be a tuple of different names or None, got {names!r}")

    def build(self) -> "Network":
        raise NotImplementedError(f"{type(self).__name__} does not define build")

    @property
    def pairs(self) -> bool:
        """Whether the network compares two sequences."""
        return False

    @property
    def layers(self) -> int:
        """Number of layers; a file whose tensors are fewer cannot hold the network."""
        return 1


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(NetworkConfig):
    """The settings of an `Encoder`. Exactly one of inputs and vocabulary is given.

    The blocks are SD-TCM blocks (`nn.SDTCM`), made from `neuron`, `bidirectional`, `norm`, `prenorm`, `dropout`,
    `amplitude`, `spatial`, `spatial_*`, `positional_bias` and `backend`; or any others, if `block` is given.
    """

    features: int
    """Channels of the stream."""
    depth: int
    """Blocks."""
    inputs: int | None = None
    """Channels of real-valued input."""
    vocabulary: int | None = None
    """Number of different tokens."""
    bidirectional: bool = False
    """Add a second temporal neuron to each block that runs in reverse."""
    norm: str = "batch"
    """batch or none."""
    prenorm: bool = True
    """Normalise before the temporal neuron (True) or after the block (False)."""
    last_norm: bool | None = None
    """A batch norm after the last block; None: if the blocks are pre-norm with norm batch."""
    dropout: float = 0.0
    """Fraction of time steps that each branch drops in training."""
    amplitude: str = "sn"
    """Which spikes have a trained size: those of the spatial neuron sn, of the temporal one tn, both or none."""
    spatial_threshold: float = 0.5
    """Threshold of the spatial neuron."""
    spatial_surrogate: Surrogate = ATan()  # noqa: RUF009 - frozen
    """Surrogate gradient of the spatial neuron."""
    positional_bias: float = renamed(0.0, saved_as="clock")
    """Positional bias for slow PRF channels, see `nn.SDTCM`; 0: none."""
    standardise: bool = False
    """Standardise each input channel by the mean and deviation of the training data, saved with the network."""
    block: Config | None = None
    """A block of your own instead of SD-TCM: a config whose `build(features)` makes it."""
    spatial: str = added("neuron")
    """neuron, or identity: blocks without spatial neuron and second Linear."""
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
        if self.standardise and self.inputs is None:
            raise ValueError(f"{owner}: standardise must be False for tokens, got {self.standardise!r}")
        require_choice(owner, "norm", self.norm, NORMS)
        require_choice(owner, "amplitude", self.amplitude, AMPLITUDES)
        require_choice(owner, "spatial", self.spatial, SPATIAL)
        if self.last_norm is not None and not isinstance(self.last_norm, bool):
            raise ValueError(f"{owner}: last_norm must be None, True or False, got {self.last_norm!r}")
        require_share(owner, "dropout", self.dropout)
        require_real(owner, "spatial_threshold", self.spatial_threshold)
        require_positional_bias(owner, self.positional_bias, self.norm, self.prenorm)
        if self.positional_bias > 0 and not isinstance(self.neuron, PRFConfig):
            raise ValueError(
                f"{owner}: positional_bias must be 0 unless neuron is a PRF, got {self.positional_bias!r} and "
                f"{self.neuron!r}"
            )
        if self.block is not None:
            object.__setattr__(self, "block", as_config(owner, "block", self.block))

    @property
    def layers(self) -> int:
        return self.depth

    @property
    def has_last_norm(self) -> bool:
        return (self.norm == "batch" and self.prenorm) if self.last_norm is None else self.last_norm


def require_class_names(owner: str, names: tuple[str, ...] | None, classes: int) -> None:
    """Refuse names that are not one for each class."""
    if names is not None and len(names) != classes:
        raise ValueError(f"{owner}: class_names must be {classes}, one for each class, got {len(names)}")


def _real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
