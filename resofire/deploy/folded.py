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
NUMBERS = ("threshold", "current", "phi_re", "phi_im")


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


def unlike(folded: Folded, x: Array) -> str | None:
    """What a sequence should have been, and what it is, if it is none for this network; None if it is."""
    if folded.tokens:
        good = x.ndim == 1 and x.dtype.kind in "iu" and x.size and 0 <= x.min() <= x.max() < len(folded.table)
        wanted = f"tokens from 0 to {len(folded.table) - 1} of shape [steps]"
    else:
        good = x.ndim == 2 and x.dtype.kind in "fiu" and len(x) and x.shape[1] == len(folded.table)
        good = good and bool(np.isfinite(x).all())
        wanted = f"finite numbers of shape [steps, {len(folded.table)}]"
    return None if good else f"{wanted}, got {x.dtype} of shape {list(x.shape)}"


def wrong(folded: Folded) -> str | None:
    """What is wrong with a folded network, as a sentence that names it; None if nothing is."""
    dtype = folded.dtype
    if dtype not in (np.float32, np.float64):
        return f"table must be float32 or float64, got {dtype}"
    if not isinstance(folded.tokens, bool) or folded.pool not in POOLS:
        return (
            f"tokens must be true or false and pool one of {', '.join(POOLS)}, got {folded.tokens!r}, {folded.pool!r}"
        )
    if folded.table.ndim != 2 or not folded.table.size:
        return f"table must have two dimensions and be filled, got {list(folded.table.shape)}"
    if folded.head.ndim != 2 or not folded.head.size:
        return f"head must have two dimensions and be filled, got {list(folded.head.shape)}"
    if not folded.layers:
        return "layers must be at least one, got none"
    width = folded.table.shape[1]
    wanted = [("table", folded.table, folded.table.shape)]
    for i, layer in enumerate(folded.layers):
        fault = _wrong_layer(i, layer, width)
        if fault:
            return fault
        inputs = width * len(layer.neurons)
        outputs = layer.rows.shape[1] if layer.fresh and layer.rows.ndim == 2 else width
        wanted.append((f"{i}.rows", layer.rows, (inputs, outputs)))
        for j, group in enumerate(layer.neurons):
            wanted += [(f"{i}.{j}.{name}", getattr(group, name), (width,)) for name in NUMBERS]
        width = outputs
        if layer.clear is not None and (layer.clear.dtype != bool or layer.clear.shape != (width,)):
            return f"{i}.clear must be bool [{width}], got {layer.clear.dtype} {list(layer.clear.shape)}"
    wanted += [("head", folded.head, (width, folded.head.shape[1])), ("bias", folded.bias, (folded.head.shape[1],))]
    for name, array, shape in wanted:
        if array.dtype != dtype or array.shape != shape:
            return f"{name} must be {dtype} {list(shape)}, got {array.dtype} {list(array.shape)}"
        if not np.isfinite(array).all():
            return f"{name} must be finite, got NaN or Inf"
    return None


def _wrong_layer(i: int, layer: Layer, width: int) -> str | None:
    if not isinstance(layer.fresh, bool):
        return f"{i}.fresh must be true or false, got {layer.fresh!r}"
    if len(layer.neurons) not in (1, 2):
        return f"{i}.neurons must be one group or two, got {len(layer.neurons)}"
    for j, group in enumerate(layer.neurons):
        if group.kind not in KINDS or group.reset not in RESETS:
            return (
                f"{i}.{j} must be one of {', '.join(KINDS)} with reset one of {', '.join(RESETS)}, "
                f"got {group.kind!r} with {group.reset!r}"
            )
        if (group.kind, group.reset) in (("prf", "hard"), ("spatial", "soft"), ("spatial", "hard")):
            return f"{i}.{j}.reset must not be {group.reset} for {group.kind} neurons"
        if group.sign.dtype != np.int8 or group.sign.shape != (width,) or (abs(group.sign.astype(int)) > 1).any():
            return (
                f"{i}.{j}.sign must be int8 [{width}] of -1, 0 and 1, got {group.sign.dtype} {list(group.sign.shape)}"
            )
    return None
