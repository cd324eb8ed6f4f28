"""The networks that can be compared, and how wide each must be for a given number of parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..models import FeedforwardConfig, NetworkConfig
from ..models.baselines import (
    BinaryS4DConfig,
    ELMConfig,
    GSUConfig,
    S4DConfig,
    SpikingLMUConfig,
    SpikingSSMConfig,
    StochasticS4Config,
    TransformerConfig,
)
from ..models.baselines.neuron_table import NEURON_TABLE
from ..models.config import EncoderConfig
from ..nn import Config, LIFConfig, NeuronConfig
from ..train import RunConfig, RunError
from ..train.memory import network_size

# States of a channel. With the 64 of the originals, states would take most of the parameters of networks as narrow as
# those of the small recipes; with 16 they take a quarter, as 64 do in the originals' width of 128.
STATES = 16
# Most channels that are tried.
WIDEST = 1 << 14


@dataclass(frozen=True)
class Contender:
    """A network to compare.

    Attributes:
        title: What tables call it.
        make: From the recipe's network and the mean length of a sequence to its config.
        multiple: The width must be a multiple of this.
        fixed: The network has a size of its own, which is kept unless a number of parameters is asked for.
        settings: Settings of the run that differ from the recipe's.
        published: Name of the paper's energy formula, if it has one.
    """

    title: str
    make: Callable[[NetworkConfig, float], NetworkConfig]
    multiple: int = 1
    fixed: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    published: str | None = None

    def sized(self, recipe: RunConfig, length: float, parameters: int | None) -> NetworkConfig:
        """The network at the width whose number of parameters is nearest; None: as it is.

        Raises:
            RunError: The network does not fit the recipe, or no width comes near the number.
        """
        try:
            config = self.make(recipe.model, length)
        except (ValueError, TypeError) as error:
            raise RunError(f"compare: {self.title} does not fit {recipe.name}: {error}") from None
        return config if parameters is None else at_size(config, parameters, self.multiple)


def at_size(config: NetworkConfig, parameters: int, multiple: int = 1) -> NetworkConfig:
    """The config with the width, a multiple of `multiple`, whose number of parameters is nearest to `parameters`."""
    low, high = 1, 2
    while network_size(_widened(config, high * multiple)).weights < parameters:
        low, high = high, 2 * high
        if high * multiple > WIDEST:
            raise RunError(f"compare: parameters must fit a width of at most {WIDEST:,}, got {parameters:,}")
    while high - low > 1:
        middle = (low + high) // 2
        if network_size(_widened(config, middle * multiple)).weights < parameters:
            low = middle
        else:
            high = middle
    candidates = (_widened(config, width * multiple) for width in (low, high))
    return min(candidates, key=lambda each: abs(network_size(each).weights - parameters))


def _widened(config: NetworkConfig, width: int) -> NetworkConfig:
    """A network of another width; of several layers, the widest, in proportion to which the others change."""
    if isinstance(config, FeedforwardConfig):
        first, *hidden, last = config.sizes
        scaled = (max(1, round(size * width / max(hidden))) for size in hidden)
        return replace(config, sizes=(first, *scaled, last))
    return replace(config, features=width)  # type: ignore[call-arg] # an EncoderConfig


def own(title: str, config: Any) -> Contender:
    """A contender from a config of the user's own.

    Args:
        title: Its name in the table.
        config: The config of a network or its run, of a block, or of an SD-TCM's neuron.

    Raises:
        RunError: It is none of these.
    """
    if isinstance(config, RunConfig):
        config = config.model
    if isinstance(config, NetworkConfig):
        return Contender(title, lambda base, length: config, fixed=True)
    if isinstance(config, NeuronConfig):
        return Contender(title, lambda base, length: replace(_encoder(base), neuron=config))
    if isinstance(config, Config):
        return Contender(title, lambda base, length: _with_block(base, config))
    kind = type(config).__name__
    raise RunError(f"compare: {title} must return the config of a network, a block or a neuron, got {kind}")


def _encoder(base: NetworkConfig) -> EncoderConfig:
    if not isinstance(base, EncoderConfig):
        raise TypeError(f"its network must be made of blocks, got {type(base).__name__}")
    return base


def _with_block(base: NetworkConfig, block: Config) -> EncoderConfig:
    """The recipe's network with other blocks. They bring their norms along, and a last one follows them."""
    return replace(
        _encoder(base), block=block, prenorm=True, last_norm=True, positional_bias=0.0, rate_target=None,
        rate_limit=None,
    )  # fmt: skip


def _blocks(title: str, config: type[Config], fixed: dict[str, Any], **options: Any) -> Contender:
    """A contender whose blocks take direction and dropout from the recipe, and the settings in `fixed`."""

    def make(base: NetworkConfig, length: float) -> NetworkConfig:
        encoder = _encoder(base)
        ways = {"bidirectional": encoder.bidirectional, "dropout": encoder.dropout}
        return _with_block(encoder, config(**ways, **fixed))

    return Contender(title, make, **options)


def _spiking_lmu(base: NetworkConfig, length: float) -> NetworkConfig:
    return _with_block(base, SpikingLMUConfig(window=max(1.0, round(length))))


def _plain(config: FeedforwardConfig) -> Callable[[NetworkConfig, float], NetworkConfig]:
    def make(base: NetworkConfig, length: float) -> NetworkConfig:
        inputs, classes = getattr(base, "inputs", None), getattr(base, "classes", None)
        if inputs is None or classes is None or base.pairs:
            raise ValueError("its input must be single sequences of values")
        return replace(config, sizes=(inputs, *config.sizes[1:-1], classes), pool=base.pool)

    return make


SLOWER = {"lr": 1e-3}
NETWORKS: dict[str, Contender] = {
    "sdtcm": Contender("SD-TCM", lambda base, length: _encoder(base), published="sdtcm"),
    "sdtcm-lif": Contender(
        "SD-TCM, LIF", lambda base, length: replace(_encoder(base), neuron=LIFConfig(), positional_bias=0.0)
    ),
    "s4d": _blocks("S4D", S4DConfig, {"states": STATES}, published="s4"),
    "transformer": _blocks("Transformer", TransformerConfig, {"heads": 2}, multiple=4, settings=SLOWER),
    "binary-s4d": _blocks("Binary S4D", BinaryS4DConfig, {"states": STATES}, published="binary-s4d"),
    "gsu": _blocks("Binary S4D, GSU & GELU", GSUConfig, {"states": STATES}, published="gsu"),
    "stochastic-s4": _blocks("Stochastic SpikingS4", StochasticS4Config, {"states": STATES}),
    "spiking-ssm": _blocks("SpikingSSM", SpikingSSMConfig, {"states": STATES}),
    "spiking-lmu": Contender("Spiking LMU", _spiking_lmu),
    "elm": Contender("ELM", lambda base, length: _with_block(base, ELMConfig()), settings=SLOWER),
    **{
        name: Contender(name.replace("-", ", ").replace("tclif", "tc-lif").upper().replace("RECURRENT", "recurrent"),
                        _plain(config), fixed=True)
        for name, config in NEURON_TABLE.items()
    },
}  # fmt: skip
