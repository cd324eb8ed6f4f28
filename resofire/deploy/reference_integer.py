"""A network of integers as a plain loop over time in NumPy: the definition for the kernel and the C file."""

import numpy as np

from .folded import Array
from .quantized import IntegerLayer, IntegerNeurons, Quantized
from .reference import Walked


def walk(quantized: Quantized, x: Array) -> Walked:
    """One whole sequence, as the folded network takes it. Scores are int64, [classes] or [T, classes] (pool none)."""
    x, top = require(quantized, x), quantized.top
    if quantized.tokens:
        z = _held(quantized.table[x] << quantized.shift, top)
    else:
        z = _held(_rounded(quantized.base + x @ quantized.table, quantized.shift), top)
    spikes = []
    for layer in quantized.layers:
        fired = np.concatenate(
            [
                _fire(group, z if i == 0 else z[::-1], quantized)[:: 1 if i == 0 else -1]
                for i, group in enumerate(layer.neurons)
            ],
            1,
        )
        z = _synapses(layer, z, fired, top)
        spikes.append(fired)
    read = _rounded(z, np.int64(quantized.head_drop))
    if quantized.pool == "none":
        return Walked(read @ quantized.head + quantized.bias, spikes)
    pooled, times = (read.sum(0), len(read)) if quantized.pool == "mean" else (read[-1], 1)
    return Walked(pooled @ quantized.head + times * quantized.bias, spikes)


def require(quantized: Quantized, x: Array) -> Array:
    """The sequence in integers, if it is one that can be walked."""
    x = quantized.encode(x)
    if not 0 < len(x) <= quantized.most_steps:
        raise ValueError(f"walk: x must have from 1 to {quantized.most_steps} steps, got {len(x)}")
    return x


def _held(x: Array, top: int) -> Array:
    return np.clip(x, -top, top)


def _rounded(x: Array, shift: Array | np.int64) -> Array:
    """x >>° shift. A shift of 0 adds 1 >> 1 = 0."""
    return (x + ((np.int64(1) << shift) >> 1)) >> shift


def _synapses(layer: IntegerLayer, z: Array, fired: Array, top: int) -> Array:
    added = (fired.astype(np.int64) @ layer.rows.astype(np.int64)) << layer.lift
    z = _held(added if layer.fresh else _rounded(z, layer.drop) + added, top)
    return z if layer.clear is None else np.where(layer.clear, 0, z)


def _fire(neurons: IntegerNeurons, z: Array, quantized: Quantized) -> Array:
    """[T, N], bool."""
    seen = neurons.sign * z + neurons.current
    if neurons.kind == "spatial":
        return seen > neurons.threshold
    top, bits = quantized.top, np.int64(quantized.phi_bits)
    re, im = neurons.phi_re, neurons.phi_im
    u, r = np.zeros((2, neurons.count), np.int64)
    fired = np.zeros(z.shape, bool)
    for t, now in enumerate(seen << neurons.lift):
        u, r = _held(_rounded(re * u - im * r + now, bits), top), _held(_rounded(im * u + re * r, bits), top)
        fired[t] = u > neurons.threshold
        if neurons.reset == "soft":
            u = np.where(fired[t], _held(u - (neurons.threshold + 1), top), u)
        elif neurons.reset == "hard":
            u = np.where(fired[t], 0, u)
    return fired
