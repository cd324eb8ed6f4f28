"""Feedback around a temporal neuron: the spikes of a layer return to it one step later."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from ...ops import equation
from ...ops.equation import loop
from ..config import NeuronConfig, as_config
from ..counts import Count, count_synapses, require_counting
from ..lif import LIFConfig
from ..neuron import Neuron, Trace


@dataclass(frozen=True)
class RecurrentConfig(NeuronConfig):
    """The settings of a `Recurrent`."""

    kind: ClassVar[str] = "Recurrent"
    neuron: NeuronConfig = LIFConfig()  # noqa: RUF009 - frozen
    """The neuron inside: a config such as `LIFConfig()`, or a Neuron class, which means its defaults."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "neuron", as_config("Recurrent", "neuron", self.neuron))

    def build(self, features: int) -> "Recurrent":
        return Recurrent(features, neuron=self.neuron)


class Recurrent(Neuron, config_class=RecurrentConfig):
    """A temporal neuron with a feedback Linear: its current is x_t + W s_{t-1}.

    The states are the neuron's and `spikes`, those of the last step. W is `feedback.weight` [N, N], a weight like any
    other (learning rate, weight decay); the parameters of the neuron inside, `neuron`, train at `neuron_lr`.

    Args:
        features: The neuron inside, which must be defined by the equation of one step, or the number of channels N.
        neuron: With a number of channels, the neuron to build: settings such as `LIFConfig()` or `ALIF.config()`, or a
            Neuron class. Default: `LIFConfig()`.

    Example:
        >>> layer = Recurrent(ALIF(128, tau=30.0))
        >>> layer = Recurrent(128, neuron=ALIF)  # its defaults
        >>> ClassifierConfig(..., neuron=Recurrent.config(neuron=BHRF.config(gain="delta")))
    """

    def __init__(self, features: int | Neuron, *, neuron: Any = None) -> None:
        if isinstance(features, Neuron) and neuron is not None:
            raise TypeError(
                f"Recurrent: neuron must be left out if the neuron inside is the first argument, got {neuron!r}"
            )
        super().__init__(features.features if isinstance(features, Neuron) else features)
        settings = as_config("Recurrent", "neuron", LIFConfig() if neuron is None else neuron)
        inner = features if isinstance(features, Neuron) else settings.build(features)
        if not isinstance(inner, Neuron) or type(inner).dynamics is Neuron.dynamics or isinstance(inner, Recurrent):
            kind = type(inner).__name__
            raise TypeError(f"Recurrent: neuron must be a Neuron with `dynamics` and no feedback yet, got {kind}")
        self.neuron = inner
        self.feedback = nn.Linear(self.features, self.features, bias=False)
        self.surrogate = inner.surrogate

    @property
    def states(self) -> tuple[str, ...]:  # type: ignore[override]
        """The states of the neuron inside, and the spikes of the last step."""
        inner: Any = self._modules.get("neuron")
        return () if inner is None else (*inner.states, "spikes")

    def coefficients(self) -> dict[str, Tensor]:
        """Those of the neuron inside."""
        return self.neuron.coefficients()

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        """One step of all channels. It mixes them, so it is run as it stands and not compiled."""
        fed = current + F.linear(state.spikes, self.feedback.weight.to(current.dtype))
        s, after = self.neuron.dynamics(fed, state, c, spike)
        return s, {**after, "spikes": s}

    def scan(
        self, x: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, Any]:
        if self._why_not_compiled(x) is not None:
            spikes, last = loop.scan(self._equation(x), x, state, cu_seqlens, reverse)
            return self._report_spikes(spikes), last
        inner, weight = self.neuron._equation(x), self.feedback.weight
        spikes, states = equation.recurrent_scan(
            inner._replace(owner="Recurrent"), weight, x, state, cu_seqlens, reverse
        )
        return self._report_spikes(spikes), self.state_type(*states)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        spikes, last = loop.step(self._equation(x), x, state)
        return self._report_spikes(spikes), last

    def trace(self, x: Tensor) -> Trace:
        spikes, states, argument = loop.record(self._equation(x), x)
        return Trace(spikes, states._asdict(), argument)

    def explain(self, x: Tensor) -> str:
        reason = self._why_not_compiled(x)
        if reason is None:
            return "scan: compiled from the `dynamics` of the neuron inside\nloop: the definition, slower"
        return f"loop: runs `dynamics` step by step under autograd (the definition)\nscan: {reason}"

    def _why_not_compiled(self, x: Tensor) -> str | None:
        return equation.why_not_in_block(self.neuron._equation(x), x)

    def count(self, name: str, steps: float) -> Count:
        """Count the neuron inside; `count_feedback` counts the Linear."""
        return require_counting(self.neuron, f"{name}.neuron").count(name, steps)

    def count_feedback(self, name: str, steps: float, active: float) -> Count:
        """Count the feedback of `active` spikes per step: each adds its weights to the current."""
        return count_synapses(self.feedback, f"{name}.feedback", "token linear", active, steps)
