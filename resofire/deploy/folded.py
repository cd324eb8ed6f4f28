"""A folded network: what is left of a trained one when everything that is constant has been merged. Arrays only.

In each time step numbers z (the accumulators) are set by the input; then each layer lets its neurons look at them and
adds the weight rows of those that fire:

    z = table[token]  or  values · weight                         the input
    v = φ v + σ z + κ,  s = [Re v ≥ η],  then the reset           temporal neurons (PRF: complex; LIF: φ = β is real)
    s = [σ z ≥ η]                                                 spatial neurons
    z += Σ rows[i] over all i with s_i, from 0 if `fresh`;        the synapses
    z = 0 where `clear`

σ is 1, -1 or, for a temporal neuron, 0 (a channel that the norm before it has silenced); κ is a constant current, η
the threshold. So a layer multiplies only in the rotation or decay of its state: 4 times for a PRF, once for a LIF,
never for a spatial neuron. Everything else is additions and comparisons.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
KINDS = ("prf", "lif", "spatial")
RESETS = ("none", "soft", "hard")
POOLS = ("mean", "last", "none")


@dataclass(frozen=True)
class Neurons:
    """N neurons of one kind."""

    kind: str
    """prf, lif or spatial."""
    sign: Array
    """σ [N], int8."""
    threshold: Array
    """η [N]."""
    current: Array
    """κ [N]; of spatial neurons zero."""
    phi_re: Array
    """[N]; the LIF's β; of spatial neurons zero."""
    phi_im: Array
    """[N]; zero but for the PRF."""
    reset: str = "none"
    """none, soft (η is taken from Re v) or hard (v is zero)."""

    @property
    def count(self) -> int:
        return len(self.sign)


@dataclass(frozen=True)
class Layer:
    """Neurons and their synapses."""

    neurons: tuple[Neurons, ...]
    """One group; two where the second walks each sequence from its end."""
    rows: Array
    """[inputs, outputs]: what a spike adds."""
    fresh: bool = False
    """Whether z begins at zero instead of at what the neurons saw."""
    clear: Array | None = None
    """[outputs], bool: channels that end at zero, since the norm behind has silenced them."""


@dataclass(frozen=True)
class Folded:
    """A network without norms, amplitudes and biases; see the top of this file."""

    table: Array
    """[vocabulary, D] for tokens, [inputs, D] for values."""
    tokens: bool
    layers: tuple[Layer, ...]
    pool: str
    """mean over the steps, last, or none: scores at every step."""
    head: Array
    """[last D, classes]: scores = pooled z · head + bias."""
    bias: Array
    """[classes]"""

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.table.dtype

    @property
    def causal(self) -> bool:
        return all(len(layer.neurons) == 1 for layer in self.layers)

    def astype(self, dtype: Any) -> "Folded":
        """The same in another precision; signs and masks stay as they are."""
        return _cast(self, np.dtype(dtype))


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(dtype) if value.dtype.kind == "f" else value
    if isinstance(value, tuple):
        return tuple(_cast(each, dtype) for each in value)
    if isinstance(value, Folded | Layer | Neurons):
        return replace(value, **{field.name: _cast(getattr(value, field.name), dtype) for field in fields(value)})
    return value
