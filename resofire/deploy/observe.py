"""What a folded network does on sequences: the ranges and rates from which its scales in integers are chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .folded import Array, Folded, Neurons
from .reference import step

# Sums of real numbers leave the grid they lie on by rounding only.
GRID = 1e-4


@dataclass(frozen=True)
class Observed:
    z: list[Array]
    """The largest |z| of each channel, before the first layer and after each."""
    states: list[list[Array]]
    """The largest |u| or |r| of each neuron, for each layer and group; of spatial neurons empty."""
    rates: list[Array]
    """Spikes per step, for each layer."""
    tokens: Array
    """How often each token comes, as a share; of values empty."""
    origin: Array
    """[inputs]: the least value; of tokens empty."""
    pitch: Array
    """[inputs]: the distance between neighbouring integers."""


def observe(folded: Folded, samples: Sequence[Array], input_bits: int) -> Observed:
    """Walks all samples in float64."""
    folded = folded.astype(np.float64)
    origin, pitch = _grid(np.concatenate([np.asarray(x) for x in samples]), folded.tokens, input_bits)
    z_most = [np.zeros(folded.table.shape[1]), *(np.zeros(layer.rows.shape[1]) for layer in folded.layers)]
    states = [
        [np.zeros(0 if group.kind == "spatial" else group.count) for group in layer.neurons] for layer in folded.layers
    ]
    fired_sums = [np.zeros(len(layer.rows)) for layer in folded.layers]
    tokens, steps = np.zeros(len(folded.table) if folded.tokens else 0), 0
    for x in samples:
        x = np.asarray(x)
        steps += len(x)
        if folded.tokens:
            tokens += np.bincount(x, minlength=len(tokens))
        z = folded.table[x] if folded.tokens else x.astype(np.float64) @ folded.table
        z_most[0] = np.maximum(z_most[0], np.abs(z).max(0))
        for number, layer in enumerate(folded.layers):
            found = [_fire(group, z[:: -1 if i else 1], states[number][i]) for i, group in enumerate(layer.neurons)]
            fired = np.concatenate([each[:: -1 if i else 1] for i, each in enumerate(found)], 1)
            fired_sums[number] += fired.sum(0)
            added = fired.astype(np.float64) @ layer.rows
            z = added if layer.fresh else z + added
            z_most[number + 1] = np.maximum(z_most[number + 1], np.abs(z).max(0))
            if layer.clear is not None:
                z = np.where(layer.clear, 0.0, z)
    return Observed(z_most, states, [each / steps for each in fired_sums], tokens / steps, origin, pitch)


def _fire(neurons: Neurons, z: Array, most: Array) -> Array:
    """[T, N], bool; `most` is raised to the largest state, as it is before a reset."""
    seen = neurons.sign * z
    if neurons.kind == "spatial":
        return seen >= neurons.threshold
    free = replace(neurons, reset="none")
    u, r = np.zeros((2, neurons.count))
    fired = np.zeros(z.shape, bool)
    for t, now in enumerate(seen):
        u, r = step(free, u, r, now, fired[t])
        np.maximum(most, np.maximum(np.abs(u), np.abs(r)), out=most)
        if neurons.reset == "soft":
            u = np.where(fired[t], u - neurons.threshold, u)
        elif neurons.reset == "hard":
            u = np.where(fired[t], 0.0, u)
    return fired


def _grid(x: Array, tokens: bool, bits: int) -> tuple[Array, Array]:
    """The integers of an input: the grid on which its values lie (pixels), or else 2^bits - 1 equal steps."""
    if tokens:
        return np.zeros(0), np.zeros(0)
    x = x.astype(np.float64)
    origin, span = x.min(0), np.ptp(x, 0)
    pitch = np.where(span == 0, 1.0, span / ((1 << bits) - 1))
    for i in np.flatnonzero(span):
        values = np.unique(x[:, i] - origin[i])
        gaps = np.diff(values)
        # Float32 pixels are a grid but for rounding; a gap that is only rounding is none.
        gap = gaps[gaps > GRID * pitch[i]].min()
        finer = span[i] / max(np.round(span[i] / gap), 1)
        off = np.abs(values / finer - np.round(values / finer)).max()
        if off < 10 * GRID and span[i] / finer < (1 << bits) - 0.5:
            pitch[i] = finer
    return origin, pitch
