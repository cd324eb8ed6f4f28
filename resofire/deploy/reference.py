"""A folded network as a plain loop over time in NumPy: the definition that streams and exports are held to."""

from typing import NamedTuple

import numpy as np

from .folded import Array, Folded, Layer, Neurons


class Walked(NamedTuple):
    """What a walk gives: scores, and the spikes of each layer [T, inputs of its rows]."""

    scores: Array
    spikes: list[Array]


def walk(folded: Folded, x: Array) -> Walked:
    """One whole sequence, tokens [T] or values [T, inputs]. Scores are [classes], or [T, classes] with pool none."""
    z = folded.table[x] if folded.tokens else np.asarray(x, folded.dtype) @ folded.table
    spikes = []
    for layer in folded.layers:
        fired = np.concatenate(
            [_fire(group, z if i == 0 else z[::-1])[:: 1 if i == 0 else -1] for i, group in enumerate(layer.neurons)], 1
        )
        z = _synapses(layer, z, fired)
        spikes.append(fired)
    pooled = {"mean": lambda: z.mean(0), "last": lambda: z[-1], "none": lambda: z}[folded.pool]()
    return Walked(pooled @ folded.head + folded.bias, spikes)


def _synapses(layer: Layer, z: Array, fired: Array) -> Array:
    added = fired.astype(layer.rows.dtype) @ layer.rows
    z = added if layer.fresh else z + added
    return z if layer.clear is None else np.where(layer.clear, z.dtype.type(0), z)


def _fire(neurons: Neurons, z: Array) -> Array:
    """[T, N], bool."""
    seen = neurons.sign * z
    if neurons.kind == "spatial":
        return seen >= neurons.threshold
    u, r = np.zeros((2, neurons.count), z.dtype)
    fired = np.zeros(z.shape, bool)
    for t, now in enumerate(seen):
        u, r = step(neurons, u, r, now, fired[t])
    return fired


def step(neurons: Neurons, u: Array, r: Array, seen: Array, fired: Array) -> tuple[Array, Array]:
    """One step of temporal neurons: the state after it; `fired` is written."""
    if neurons.kind == "prf":
        u, r = (
            neurons.phi_re * u - neurons.phi_im * r + (seen + neurons.current),
            neurons.phi_im * u + neurons.phi_re * r,
        )
    else:
        u = neurons.phi_re * u + (seen + neurons.current)
    fired[:] = u >= neurons.threshold
    if neurons.reset == "soft":
        u = np.where(fired, u - neurons.threshold, u)
    elif neurons.reset == "hard":
        u = np.where(fired, u.dtype.type(0), u)
    return u, r
