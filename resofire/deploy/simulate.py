"""A network of integers, simulated fast: the bits of `reference_integer.walk`, at the speed of a kernel."""

import numpy as np

from . import kernels_integer as k
from .folded import KINDS, POOLS, RESETS, Array
from .packed import Row
from .quantized import Quantized
from .reference import Walked
from .reference_integer import require, walk


class Simulation:
    """Packs a network once, then walks sequences one by one. A bidirectional network is walked by the reference."""

    def __init__(self, quantized: Quantized) -> None:
        self.quantized = quantized
        self._sizes = np.cumsum([len(layer.rows) for layer in quantized.layers])[:-1]
        if quantized.causal:
            self._whole, self._numbers, self._rows = _pack(quantized)

    def walk(self, x: Array) -> Walked:
        """As `reference_integer.walk`, bit for bit."""
        if not self.quantized.causal:
            return walk(self.quantized, x)
        scores, fired, _ = self._run(x)
        return Walked(
            scores if self.quantized.pool == "none" else scores[0], np.split(fired.view(bool), self._sizes, 1)
        )

    def states(self, x: Array) -> Array:
        """u and, if there is a PRF, r of all temporal neurons after the last step, as in the C file's state."""
        groups = [layer.neurons[0] for layer in self.quantized.layers]
        temporal = np.concatenate([np.full(group.count, group.kind != "spatial") for group in groups])
        both = self._run(x)[2][:, temporal]
        return both.reshape(-1) if any(group.kind == "prf" for group in groups) else both[0]

    def digest(self, x: Array) -> int:
        """32 bits that stand for every spike and its time, and the last states; the C file's check prints the same."""
        return int(k.digest(self._run(x)[1], self.states(x)))

    def _run(self, x: Array) -> tuple[Array, Array, Array]:
        """Scores, spikes and last states."""
        quantized = self.quantized
        if not quantized.causal:
            raise ValueError("simulate: the network is bidirectional: it has no last state")
        x = require(quantized, x)
        state = np.zeros((2, quantized.neurons), np.int64)
        fired = np.zeros((len(x), quantized.neurons), np.uint8)
        scores = np.zeros((len(x) if quantized.pool == "none" else 1, len(quantized.bias)), np.int64)
        k.walk(self._whole, self._numbers, self._rows, x.reshape(len(x), -1), state, fired, scores)
        return scores, fired, state


def _pack(quantized: Quantized) -> tuple[Array, Array, Array]:
    numbers = Row(np.int64)
    place = numbers.place
    q = quantized
    whole = np.zeros(k.FIRST + k.LAYER * len(q.layers), np.int64)
    whole[[k.TOKENS, k.INPUTS, k.ENTRY, k.WIDTH, k.CLASSES, k.POOL, k.LAYERS, k.TABLE, k.SHIFT, k.BASE, k.HEAD]] = [
        q.tokens, 1 if q.tokens else len(q.table), q.table.shape[1], *q.head.shape, POOLS.index(q.pool), len(q.layers),
        place(q.table), place(q.shift), place(q.base), place(q.head),
    ]  # fmt: skip
    whole[[k.BIAS, k.DROP, k.TOP, k.BITS]] = [place(q.bias), q.head_drop, q.top, q.phi_bits]
    at = 0
    for number, layer in enumerate(q.layers):
        (neurons,) = layer.neurons
        about = whole[k.FIRST + k.LAYER * number :]
        about[[k.KIND, k.COUNT, k.OUTPUTS, k.FRESH, k.RESET, k.SIGN, k.THRESHOLD, k.CURRENT, k.RE, k.IM, k.MOVE]] = [
            KINDS.index(neurons.kind), neurons.count, layer.rows.shape[1], layer.fresh, RESETS.index(neurons.reset),
            place(neurons.sign), place(neurons.threshold), place(neurons.current), place(neurons.phi_re),
            place(neurons.phi_im), place(neurons.lift),
        ]  # fmt: skip
        about[[k.ROWS, k.LIFT, k.FALL]] = [at, place(layer.lift), place(layer.drop)]
        about[k.KEEP] = -1 if layer.clear is None else place(~layer.clear)
        at += layer.rows.size
    return whole, numbers.whole(), np.concatenate([layer.rows.reshape(-1) for layer in q.layers])
