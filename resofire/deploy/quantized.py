"""A folded network in fixed point: the arrays, and the integer arithmetic that NumPy, Numba and C all perform alike.

With B bits of state every z, u and r saturates at ±(2^(B-1) - 1): `sat`. >> is an arithmetic shift, which
rounds towards minus infinity; x >>° s = (x + 2^(s-1)) >> s rounds half up. P is the number of fraction bits of φ. In
each time step:

    z = sat(table[token] << lift)                                              input: tokens,
    z = sat((base + Σ x · table) >>° drop)                                     or values, x from 0 to 2^input_bits - 1
    u, r = sat((re u - im r + ((σ z + κ) << lift)) >>° P), sat((im u + re r) >>° P)      temporal neurons
    s = [u ≥ η],  then the reset: u = sat(u - η) or u = 0                      (LIF: r and im are zero)
    s = [σ z ≥ η]                                                              spatial neurons
    z = sat((z >>° drop) + (Σ rows[i] over all i with s_i) << lift),           synapses; from 0 if `fresh`;
    z = 0 where `clear`
    score = Σ (z >>° head_drop) · head + bias                                  read-out

The arrays hold η - 1, compared with >, so that never and always can be represented too. A sum over spikes is completed
before it saturates, so the order does not matter. Products and sums that do not saturate fit into 64 bits.

The read-out sums instead of dividing, which leaves the largest score the largest: score = Σ S · head + W · bias, with
S = Σ z and W = steps for the pool "mean", the same over the last pool_steps steps for "window", and for "leaky"

    S = S - (S · factor >>° shift) + (z << fraction),    W = W - (W · factor >>° shift) + (1 << fraction)

with factor / 2^shift = 1 / pool_steps, exactly for powers of two and to 2^-15 of it for others; `drop` bits of both are
rounded off before they meet the head. Rounding shifts S / W by less than 2^-fraction of a unit of z and of its size.

Each channel has a unit of its own, any real number: it is part of rows, thresholds, currents and head and costs
nothing. Layers that add to the same channel differ by powers of two (`lift`), and so does a neuron's state; where the
range of a channel grows from layer to layer, its unit grows too (`drop`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..nn.folded import Array

WEIGHT_BITS = (8, 6, 4)
STATE_BITS = (16, 24, 32)


class Leak(NamedTuple):
    """The numbers of a leaky read-out, see the top of this file."""

    factor: int
    shift: int
    fraction: int
    drop: int


@dataclass(frozen=True)
class IntegerNeurons:
    """N neurons of one kind; all arrays are [N] and int64 unless stated otherwise."""

    kind: str
    """prf, lif or spatial."""
    sign: Array
    """σ, int8: 1, -1 or 0."""
    threshold: Array
    """η - 1: above it the neuron fires."""
    current: Array
    """κ, in units of z."""
    phi_re: Array
    phi_im: Array
    """With P fraction bits."""
    lift: Array
    """0 to P: the shift of σ z + κ that brings it to the unit of φ u; P where the state has the unit of z."""
    reset: str = "none"

    @property
    def count(self) -> int:
        """The number of neurons."""
        return len(self.sign)


@dataclass(frozen=True)
class IntegerLayer:
    """Neurons and their synapses."""

    neurons: tuple[IntegerNeurons, ...]
    rows: Array
    """[inputs, outputs], int8, of weight_bits: what a spike adds, before `lift`."""
    lift: Array
    """[outputs]"""
    drop: Array
    """[outputs]: the power of two by which the unit of z grows here."""
    fresh: bool = False
    clear: Array | None = None
    """[outputs], bool."""


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """A fixed-point network; see the top of this file. Real numbers stand only at its two ends."""

    weight_bits: int
    state_bits: int
    phi_bits: int
    """P."""
    input_bits: int
    tokens: bool
    table: Array
    """[vocabulary, D] of weight_bits, or [inputs, D] of state_bits: values are multiplied anyway."""
    shift: Array
    """[D]: lift for tokens, drop for values."""
    base: Array
    """[D]: what the code 0 stands for; zero for tokens."""
    origin: Array
    """[inputs], real: the value whose code is 0."""
    pitch: Array
    """[inputs], real: the distance between the values of neighbouring codes."""
    layers: tuple[IntegerLayer, ...]
    pool: str
    head: Array
    """[last D, classes], 16 bits."""
    head_drop: int
    bias: Array
    """[classes]"""
    score_unit: float
    """Scores times this over W approximate those of the folded network; W is 1 for the pools "last" and "none"."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes."""
    pool_steps: int | None = None
    """STEPS of the pools leaky and window."""

    @property
    def top(self) -> int:
        """The value at which states saturate."""
        return (1 << (self.state_bits - 1)) - 1

    @property
    def causal(self) -> bool:
        """Whether no layer runs in reverse."""
        return all(len(layer.neurons) == 1 for layer in self.layers)

    @property
    def neurons(self) -> int:
        """The number of neurons in all layers."""
        return sum(len(layer.rows) for layer in self.layers)

    @property
    def most_steps(self) -> int:
        """The number of steps that 64 bits can sum whatever the input; the pools leaky and window have no such end."""
        return (1 << 31) - 1 if self.pool in ("leaky", "window") else min(self.longest_sum, (1 << 31) - 1)

    @property
    def longest_sum(self) -> int:
        """The number of steps whose scores 64 bits can sum whatever the input."""
        return (1 << 62) // self._each

    @property
    def leak(self) -> Leak:
        """The numbers of a leaky read-out: as many bits of fraction, up to 16, as 64 bits hold whatever the input."""
        steps = self.pool_steps or 1
        shift = 15 + (steps - 1).bit_length()
        factor = round((1 << shift) / steps)
        while factor % 2 == 0:
            factor, shift = factor // 2, shift - 1
        # |S| never exceeds (largest z · 2^fraction + 1/2) · 2^shift / factor, where it decays as fast as it grows.
        fraction = 16
        while (self._largest * (1 << fraction) + 2) << shift > 1 << 63:
            fraction -= 1
        sums, drop = (((1 << fraction) + 1) << shift) // factor + 1, 0
        while ((sums >> drop) + 2) * self._each > 1 << 62:
            drop += 1
        return Leak(factor, shift, fraction, drop)

    @property
    def _largest(self) -> int:
        """The largest |z| that the read-out sees."""
        return 1 << (self.state_bits - 1 - self.head_drop)

    @property
    def _each(self) -> int:
        """The largest |score| of one step."""
        return int((np.abs(self.head).sum(0) * self._largest + np.abs(self.bias)).max(initial=1))

    def encode(self, x: Array) -> Array:
        """A sequence as integer codes: tokens [T] as they are, values [T, inputs] to the nearest of 2^input_bits.

        Raises:
            ValueError: The shape or type is wrong, or a value is not finite or not a token.
        """
        x = np.asarray(x)
        if self.tokens:
            if x.ndim != 1 or x.dtype.kind not in "iu":
                raise ValueError(f"encode: x must be integers of shape [steps], got {x.dtype} of {list(x.shape)}")
            if x.size and not 0 <= x.min() <= x.max() < len(self.table):
                bad = x.min() if x.min() < 0 else x.max()
                raise ValueError(f"encode: x must hold tokens from 0 to {len(self.table) - 1}, got {bad}")
            return x.astype(np.int64)
        if x.ndim != 2 or x.shape[1] != len(self.table) or x.dtype.kind not in "fiu":
            shape = f"[steps, {len(self.table)}]"
            raise ValueError(f"encode: x must be numbers of shape {shape}, got {x.dtype} of {list(x.shape)}")
        if not np.isfinite(x).all():
            raise ValueError(f"encode: x must be finite, got {x[~np.isfinite(x)][0]}")
        codes = np.floor((x.astype(np.float64) - self.origin) / self.pitch + 0.5)
        return np.clip(codes, 0, (1 << self.input_bits) - 1).astype(np.int64)
