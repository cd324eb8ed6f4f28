"""A folded network: everything constant in a trained network merged into plain arrays. Each module folds itself.

In each time step the input sets the accumulators z; then the neurons of each layer read z, and the synapses add the
weight rows of the neurons that fire:

    z = table[token]  or  (values - origin) · weight              input
    v = φ v + σ z + κ,  s = [Re v ≥ η],  then the reset           temporal neurons (PRF: complex; LIF: φ = β is real)
    s = [σ z ≥ η]                                                 spatial neurons
    s, state = equation(g σ z + κ, state)                         neurons of any other equation (`Equation`)
    z += Σ rows[i] over all i with s_i, from 0 if `fresh`;        synapses
    z = 0 where `clear`

σ is 1, -1 or, for a temporal neuron, 0 (a channel silenced by the norm before it); κ is a constant current, η the
threshold. The only products in a layer are in the rotation or decay of the state: 4 for a PRF, 1 for a LIF, none
for a spatial neuron. Everything else is additions and comparisons. Neurons that are neither PRF nor LIF keep their
equation as a graph, with g = |a| of the norm before them: streams and C in floats run it, other formats refuse it.

The read-out reduces the z of all steps so far to one vector, from which `head` computes scores:

    mean        Σ z / steps
    last        z of the last step; none: the same, with scores at every step
    leaky       S / W with S = λ S + z, W = λ W + 1, λ = 1 - 1/pool_steps: a mean that forgets. At the beginning it is
                nearly the mean, and it is normalised at every step
    window      the mean over the last pool_steps steps, or over all if there are fewer

`leaky` and `window` are for signals that never end. A leaky mean needs no more memory than a mean, a window that of
pool_steps vectors.

How to fold. The stream of a residual network is written as u = c z + d with constants c, d per channel. A bias goes
into d; a weight row is divided by c; a norm γ(u - μ)/√(σ² + ε) + β on the stream only changes c and d. A neuron that
reads u reads z with another threshold, from the other side where c is negative. Where γ = 0 the norm forgets the
stream: z is cleared and c restarts at 1. A gain below `floor` (1e-19 in float32) counts as γ = 0: what passes it is far
below rounding, and dividing by it would leave the range. Fold in float64; `deploy.fold` rounds once at the end. φ is
used as the network computes it, in its own precision.

A module takes part by a method of its own:

    neuron     fold(a, b) -> Neurons                            it reads a z + b, arrays [N]
    block      fold(c, d, floor) -> (list[Layer], c, d)         on the stream c z + d; returns c and d after the block
    network    fold(floor) -> Folded
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..ops.equation.graph import Program

Array = NDArray[Any]
KINDS = ("prf", "lif", "spatial", "equation")
RESETS = ("none", "soft", "hard")
POOLS = ("mean", "last", "none", "leaky", "window")
# The largest pool_steps of the read-outs that have them.
MOST_STEPS = {"leaky": 1 << 20, "window": 1 << 16}
# The float arrays of a group of neurons.
NUMBERS = ("threshold", "current", "phi_re", "phi_im")
_NO_SUCH_RESET = (
    ("prf", "hard"), ("spatial", "soft"), ("spatial", "hard"), ("equation", "soft"), ("equation", "hard")
)  # fmt: skip


class FoldError(TypeError):
    """A module that cannot be folded.

    Args:
        module: The module.
        reason: Why, as a clause: "it has no method `fold`".
        place: Its name in the model, which `deploy.fold` fills in.
    """

    def __init__(self, module: nn.Module, reason: str, place: str = "") -> None:
        kind = type(module).__name__
        super().__init__(f"fold: {f'{place} ({kind})' if place else kind} cannot be folded: {reason}")
        self.module, self.reason = module, reason


@dataclass(frozen=True)
class Equation:
    """One step of neurons that are neither PRF nor LIF."""

    owner: str
    """The class of the neuron."""
    program: Program
    """Its graph, a function of current, states and coefficients."""
    gain: Array
    """g [N]."""
    coefficients: tuple[Array, ...]
    """Those of the program in its order, each [] or [N]."""
    operations: dict[str, float]
    """Per neuron and step, by the names of `Count`."""


@dataclass(frozen=True)
class Neurons:
    """N neurons of one kind."""

    kind: str
    """prf, lif, spatial or equation."""
    sign: Array
    """σ [N], int8."""
    threshold: Array
    """η [N]; zero for an equation, which has its own."""
    current: Array
    """κ [N]; zero for spatial neurons."""
    phi_re: Array
    """[N]; β for a LIF, zero for spatial neurons and equations."""
    phi_im: Array
    """[N]; zero except for a PRF."""
    reset: str = "none"
    """none, soft (subtract η from Re v) or hard (set v to zero); none for an equation, which resets by itself."""
    equation: Equation | None = None
    """Of the kind equation only."""

    @property
    def count(self) -> int:
        """The number of neurons."""
        return len(self.sign)


@dataclass(frozen=True)
class Layer:
    """Neurons and their synapses."""

    neurons: tuple[Neurons, ...]
    """One group; or two, the second of which runs over each sequence in reverse."""
    rows: Array
    """[inputs, outputs]: what a spike adds."""
    fresh: bool = False
    """Whether z starts at zero instead of the z that the neurons read."""
    clear: Array | None = None
    """[outputs], bool: channels set to zero, because the norm after them silences them."""


@dataclass(frozen=True)
class Folded:
    """A network without norms, amplitudes and biases; the equations are at the top of this file."""

    table: Array
    """[vocabulary, D] for tokens, [inputs, D] for values."""
    tokens: bool
    layers: tuple[Layer, ...]
    pool: str
    """How z is pooled over time: mean, last, none, leaky or window, see the top of this file."""
    head: Array
    """[last D, classes]: scores = pooled z · head + bias."""
    bias: Array
    """[classes]"""
    origin: Array | None = None
    """[inputs]: what is subtracted from values; None for tokens, and where it is zero."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes."""
    pool_steps: int | None = None
    """STEPS of the pools leaky and window; None for the others."""

    @property
    def readout(self) -> str:
        """The pool as `with_readout` takes it: mean, last, none, leaky:STEPS or window:STEPS."""
        return self.pool if self.pool_steps is None else f"{self.pool}:{self.pool_steps}"

    def with_readout(self, readout: str) -> "Folded":
        """The same network with another read-out. It needs no training, but a network trained with it may be better.

        Args:
            readout: mean, last, leaky:STEPS or window:STEPS.

        Raises:
            ValueError: It is none of these, or STEPS is out of range.
        """
        pool, colon, text = readout.partition(":") if isinstance(readout, str) else ("", "", "")
        steps = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
        if pool not in POOLS or (pool == "none" and self.pool != "none") or bool(colon) != (pool in MOST_STEPS):
            raise ValueError(f"readout must be mean, last, leaky:STEPS or window:STEPS, got {readout!r}")
        if pool_fault(pool, steps):
            raise ValueError(f"readout must be {pool}:STEPS with 1 to {MOST_STEPS[pool]} steps, got {readout!r}")
        return replace(self, pool=pool, pool_steps=steps)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.table.dtype

    @property
    def causal(self) -> bool:
        """Whether no layer runs in reverse, so that the network can be streamed."""
        return all(len(layer.neurons) == 1 for layer in self.layers)

    @property
    def neurons(self) -> int:
        """The number of neurons in all layers."""
        return sum(len(layer.rows) for layer in self.layers)

    @property
    def equation_owner(self) -> str | None:
        """The class of the first neuron that is neither PRF nor LIF; None if there is none."""
        groups = (group for layer in self.layers for group in layer.neurons)
        return next((group.equation.owner for group in groups if group.equation is not None), None)

    def astype(self, dtype: Any) -> "Folded":
        """The same network in another precision; signs and masks keep their types."""
        return _cast(self, np.dtype(dtype))

    def fault(self) -> str | None:
        """One sentence naming the first array or setting that is wrong; None if the network is sound."""
        if self.dtype not in (np.float32, np.float64):
            return f"table must be float32 or float64, got {self.dtype}"
        if not isinstance(self.tokens, bool) or self.pool not in POOLS:
            return f"tokens must be a bool and pool one of {', '.join(POOLS)}, got {self.tokens!r}, {self.pool!r}"
        fault = pool_fault(self.pool, self.pool_steps)
        if fault:
            return fault
        for name, array in (("table", self.table), ("head", self.head)):
            if array.ndim != 2 or not array.size:
                return f"{name} must have two dimensions and be filled, got {list(array.shape)}"
        names = self.class_names
        if names is not None and (len(names) != self.head.shape[1] or not all(isinstance(each, str) for each in names)):
            return f"class_names must be {self.head.shape[1]} names, got {names!r}"
        if not self.layers:
            return "layers must be at least one, got none"
        for fault in self._layer_faults():
            if fault:
                return fault
        for name, array, shape in self._shapes():
            if array.dtype != self.dtype or array.shape != shape:
                return f"{name} must be {self.dtype} {list(shape)}, got {array.dtype} {list(array.shape)}"
            if not np.isfinite(array).all():
                return f"{name} must be finite, got NaN or Inf"
        return None

    def input_fault(self, x: Array) -> str | None:
        """Why this network cannot read a sequence, as half a sentence ("tokens …, got …"); None if it can."""
        size = len(self.table)
        if self.tokens:
            valid = x.ndim == 1 and x.dtype.kind in "iu" and x.size and 0 <= x.min() <= x.max() < size
            expected = f"tokens from 0 to {size - 1} of shape [steps]"
        else:
            valid = x.ndim == 2 and x.dtype.kind in "fiu" and len(x) and x.shape[1] == size and np.isfinite(x).all()
            expected = f"finite numbers of shape [steps, {size}]"
        return None if valid else f"{expected}, got {x.dtype} of shape {list(x.shape)}"

    def _widths(self) -> Iterator[tuple[str, Layer, int, int]]:
        """For each layer: its number, itself, and the widths of z before and after it."""
        width = self.table.shape[1]
        for i, layer in enumerate(self.layers):
            outputs = layer.rows.shape[1] if layer.fresh and layer.rows.ndim == 2 else width
            yield str(i), layer, width, outputs
            width = outputs

    def _layer_faults(self) -> Iterator[str | None]:
        for i, layer, width, outputs in self._widths():
            if not isinstance(layer.fresh, bool):
                yield f"{i}.fresh must be true or false, got {layer.fresh!r}"
            if len(layer.neurons) not in (1, 2):
                yield f"{i}.neurons must be one group or two, got {len(layer.neurons)}"
            for j, group in enumerate(layer.neurons):
                yield _group_fault(f"{i}.{j}", group, width)
            clear = layer.clear
            if clear is not None and (clear.dtype != bool or clear.shape != (outputs,)):
                yield f"{i}.clear must be bool [{outputs}], got {clear.dtype} {list(clear.shape)}"

    def _shapes(self) -> Iterator[tuple[str, Array, tuple[int, ...]]]:
        """Every float array with its name and the shape it must have."""
        yield "table", self.table, self.table.shape
        if self.origin is not None:
            yield "origin", self.origin, (0 if self.tokens else len(self.table),)
        width = self.table.shape[1]
        for i, layer, inputs, outputs in self._widths():
            yield f"{i}.rows", layer.rows, (inputs * len(layer.neurons), outputs)
            for j, group in enumerate(layer.neurons):
                for name in NUMBERS:
                    yield f"{i}.{j}.{name}", getattr(group, name), (inputs,)
                if group.equation is not None:
                    yield f"{i}.{j}.gain", group.equation.gain, (inputs,)
                    values = zip(group.equation.program.coefficients, group.equation.coefficients, strict=True)
                    for name, value in values:
                        yield f"{i}.{j}.c.{name}", value, (inputs,) if value.ndim else ()
            width = outputs
        classes = self.head.shape[1]
        yield "head", self.head, (width, classes)
        yield "bias", self.bias, (classes,)


def pool_fault(pool: str, steps: object) -> str | None:
    """Why the STEPS of a pool are invalid, in one sentence; None if they are valid."""
    most = MOST_STEPS.get(pool)
    if most is None:
        return None if steps is None else f"pool_steps must be None for pool {pool}, got {steps!r}"
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= most:
        return f"pool_steps must be an integer from 1 to {most} for pool {pool}, got {steps!r}"
    return None


def fold_method(module: nn.Module) -> Callable[..., Any]:
    """The method `fold` of a module.

    Raises:
        FoldError: It has none.
    """
    method = getattr(module, "fold", None)
    if not callable(method):
        raise FoldError(module, "it has no method `fold`")
    return method


def temporal(
    kind: str, *, phi_re: Array, phi_im: Array, gain: Array, threshold: Any, reset: str, a: Array, b: Array
) -> Neurons:
    """PRF or LIF neurons that read the current a z + b, with a and b [N]; φ is β for a LIF.

    The state is divided by |a| and the gain, which leaves σ = sign(a), the constant current b/|a| and the threshold
    V/(gain |a|). Where a = 0 there is nothing to divide by: σ = 0 and the current is b.
    """
    size = np.where(a == 0, 1.0, np.abs(a))
    return Neurons(
        kind=kind,
        sign=np.sign(a).astype(np.int8),
        threshold=np.broadcast_to(np.asarray(threshold, np.float64), a.shape) / (gain * size),
        current=b / size,
        phi_re=phi_re,
        phi_im=phi_im,
        reset=reset,
    )


def spatial(threshold: float, a: Array, b: Array) -> Neurons:
    """Neurons without memory that fire where a z + b ≥ threshold; a and b are [N], and a is nowhere 0."""
    zero = np.zeros_like(a)
    return Neurons(
        kind="spatial",
        sign=np.sign(a).astype(np.int8),
        threshold=(threshold - b) / np.abs(a),
        current=zero,
        phi_re=zero,
        phi_im=zero,
    )


def equation(
    owner: str, program: Program, coefficients: tuple[Array, ...], operations: dict[str, float], a: Array, b: Array
) -> Neurons:
    """Neurons of any equation that read the current a z + b, with a and b [N]; see `Equation`."""
    zero = np.zeros_like(a)
    return Neurons(
        kind="equation",
        sign=np.sign(a).astype(np.int8),
        threshold=zero,
        current=b,
        phi_re=zero,
        phi_im=zero,
        equation=Equation(owner, program, np.abs(a), coefficients, operations),
    )


def norm_affine(norm: Any, floor: float = 0.0) -> tuple[Array, Array]:
    """Gain and offset, each [N], of a batch norm in evaluation; a gain below `floor` is 0."""
    gain = to_array(norm.weight) / np.sqrt(to_array(norm.running_var) + norm.eps)
    gain = np.where(np.abs(gain) < floor, 0.0, gain)
    return gain, to_array(norm.bias) - gain * to_array(norm.running_mean)


def weight_rows(weight: Tensor, log_amplitude: Tensor | None = None) -> Array:
    """The rows [inputs, outputs] of a Linear's weight, times the amplitude of the spikes it reads."""
    rows = np.ascontiguousarray(to_array(weight).T)
    return rows if log_amplitude is None else rows * np.exp(to_array(log_amplitude))


def to_array(tensor: Tensor) -> Array:
    """A tensor as a float64 array."""
    return tensor.detach().cpu().double().numpy()


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(dtype) if value.dtype.kind == "f" else value
    if isinstance(value, tuple) and not isinstance(value, Program):
        return tuple(_cast(each, dtype) for each in value)
    if isinstance(value, Folded | Layer | Neurons | Equation):
        return replace(value, **{field.name: _cast(getattr(value, field.name), dtype) for field in fields(value)})
    return value


def _group_fault(name: str, group: Neurons, width: int) -> str | None:
    if group.kind not in KINDS or group.reset not in RESETS:
        return (
            f"{name} must be one of {', '.join(KINDS)} with reset one of {', '.join(RESETS)}, "
            f"got {group.kind!r} with {group.reset!r}"
        )
    if (group.kind == "equation") != (group.equation is not None):
        return f"{name}.equation must be there for kind equation and for no other, got {group.kind!r}"
    if (group.kind, group.reset) in _NO_SUCH_RESET:
        return f"{name}.reset must not be {group.reset} for {group.kind} neurons"
    sign = group.sign
    if sign.dtype != np.int8 or sign.shape != (width,) or (abs(sign.astype(int)) > 1).any():
        return f"{name}.sign must be int8 [{width}] of -1, 0 and 1, got {sign.dtype} {list(sign.shape)}"
    return None
