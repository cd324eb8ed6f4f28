"""The networks of the paper's table of neurons on sequential MNIST: Linear, neuron, Linear, neuron, …, without norms.

    1-64-256-256-10    LIF, PLIF, GLIF, TC-LIF: 85.1k; recurrent, with feedback on the layers of 64 and 256: 155.1k
    1-256-10           AHP and BHRF, recurrent, no biases: 68.4k and 68.9k

The recurrent counts of the paper include a bias in the feedback (320 numbers), which only adds to the bias of the
Linear before it and is left out here. GLIF is larger here, because all eight constants of a channel are trained, as in
its own paper. PSN is the sliding one: the original has a matrix of 784 x 784 in each layer. The paper's own 68.9k are
two SD-TCM blocks of 128 channels, the recipe `smnist`; `prf` is the PRF in the plain network, the paper's "87k".

Without norms, the initial weights decide whether deep layers fire at all: `gain` multiplies them, so that all layers
start at rates between 1 and 50 %.
"""

from dataclasses import dataclass

from ...nn import AHP, ALIF, BHRF, GLIF, PLIF, TCLIF, LIFConfig, NeuronConfig, PRFConfig, Recurrent, SlidingPSN
from ...nn.folded import Folded, FoldError
from ..feedforward import Feedforward, FeedforwardConfig

SIZES, SHORT = (1, 64, 256, 256, 10), (1, 256, 10)


@dataclass(frozen=True, kw_only=True)
class FeedbackConfig(FeedforwardConfig):
    """The settings of a `Feedback` network."""

    feedback: tuple[bool, ...]
    """Which layers of neurons have feedback, one for each."""
    bias: bool = True
    """Whether the Linears have biases."""

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = len(self.sizes) - 2
        if len(self.feedback) != layers or not all(isinstance(each, bool) for each in self.feedback):
            raise ValueError(
                f"FeedbackConfig: feedback must be {layers} of True or False, one for each layer of neurons, "
                f"got {self.feedback!r}"
            )

    def build(self) -> "Feedback":
        return Feedback(self)


class Feedback(Feedforward):
    """A `Feedforward` network in which the spikes of some layers return to them one step later (`nn.Recurrent`).

    Args:
        config: Its settings, a `FeedbackConfig`.
    """

    config: FeedbackConfig

    def __init__(self, config: FeedbackConfig) -> None:
        super().__init__(config)
        recurrent = Recurrent.config(neuron=config.neuron)
        for number, (width, has_feedback) in enumerate(zip(self.widths, config.feedback, strict=True)):
            if has_feedback:
                self.neurons[number] = recurrent.build(width)
        for linear in () if config.bias else self.linears:
            linear.register_parameter("bias", None)

    def fold(self, floor: float) -> Folded:
        """Refused: a network with feedback has no folded form."""
        raise FoldError(self, "a network with feedback cannot be folded")


def _plain(neuron: NeuronConfig | type, gain: float) -> FeedforwardConfig:
    return FeedforwardConfig(sizes=SIZES, neuron=neuron, gain=gain)  # type: ignore[arg-type] # a class is its defaults


def _recurrent(network: FeedforwardConfig) -> FeedbackConfig:
    return FeedbackConfig(
        sizes=network.sizes, neuron=network.neuron, gain=network.gain, feedback=(True, True, False)
    )  # fmt: skip


def _short(neuron: type, gain: float) -> FeedbackConfig:
    return FeedbackConfig(sizes=SHORT, neuron=neuron, gain=gain, feedback=(True,), bias=False)  # type: ignore[arg-type]


LIF_3 = _plain(LIFConfig(tau=2.0), 3.0)
NEURON_TABLE: dict[str, FeedforwardConfig] = {
    "lif": LIF_3,
    "lif-recurrent": _recurrent(LIF_3),
    "plif": _plain(PLIF, 10.0),
    "plif-recurrent": _recurrent(_plain(PLIF, 10.0)),
    "glif": _plain(GLIF, 3.0),
    "glif-recurrent": _recurrent(_plain(GLIF, 3.0)),
    "tclif": _plain(TCLIF, 3.0),
    "tclif-recurrent": _recurrent(_plain(TCLIF, 3.0)),
    "alif-recurrent": _recurrent(_plain(ALIF, 3.0)),
    "ahp-recurrent": _short(AHP, 3.0),
    "bhrf-recurrent": _short(BHRF, 6.0),
    "psn": _plain(SlidingPSN.config(order=32), 3.0),
    "prf": _plain(PRFConfig(tau=2.0, delta=(1e-2, 1.0), train_tau=True), 10.0),
}
