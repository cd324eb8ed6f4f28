"""A folded network as the kernels take it: its numbers in one array, its integers in another."""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from . import kernels as k
from .folded import KINDS, POOLS, RESETS, Array, Folded


class Packed(NamedTuple):
    """See `kernels`."""

    whole: Array
    numbers: Array
    states: int
    """Temporal neurons in all."""
    neurons: int
    """Neurons in all, spatial ones as well."""
    widest: int
    most: int
    """Neurons of the largest layer."""


class Row:
    """Arrays of any shape laid one behind the other into one of `dtype`."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = dtype
        self._parts: list[Array] = []
        self._size = 0

    def place(self, array: Array) -> int:
        """Where it begins."""
        at = self._size
        self._parts.append(np.asarray(array, self._dtype).reshape(-1))
        self._size += self._parts[-1].size
        return at

    def whole(self) -> Array:
        return np.concatenate(self._parts)


def pack(folded: Folded) -> Packed:
    if not folded.causal:
        raise ValueError("stream: the network is bidirectional: it needs whole sequences and cannot be streamed")
    numbers = Row(folded.dtype)
    place = numbers.place
    whole = np.zeros(k.FIRST + k.LAYER * len(folded.layers), np.int64)
    whole[[k.TOKENS, k.INPUTS, k.ENTRY, k.WIDTH, k.CLASSES, k.POOL, k.LAYERS, k.TABLE, k.HEAD, k.BIAS]] = [
        folded.tokens, 1 if folded.tokens else len(folded.table), folded.table.shape[1], *folded.head.shape,
        POOLS.index(folded.pool), len(folded.layers), place(folded.table), place(folded.head), place(folded.bias),
    ]  # fmt: skip
    states = 0
    for number, layer in enumerate(folded.layers):
        (neurons,) = layer.neurons
        about = whole[k.FIRST + k.LAYER * number :]
        about[[k.KIND, k.COUNT, k.OUTPUTS, k.FRESH, k.RESET, k.SIGN, k.THRESHOLD, k.CURRENT, k.RE, k.IM, k.ROWS]] = [
            KINDS.index(neurons.kind), neurons.count, layer.rows.shape[1], layer.fresh, RESETS.index(neurons.reset),
            place(neurons.sign), place(neurons.threshold), place(neurons.current), place(neurons.phi_re),
            place(neurons.phi_im), place(layer.rows),
        ]  # fmt: skip
        about[k.KEEP] = -1 if layer.clear is None else place(~layer.clear)
        about[k.STATE] = states
        states += 0 if neurons.kind == "spatial" else neurons.count
    counts = [layer.neurons[0].count for layer in folded.layers]
    widest = max(folded.table.shape[1], *(layer.rows.shape[1] for layer in folded.layers))
    return Packed(whole, numbers.whole(), states, sum(counts), widest, max(counts))
