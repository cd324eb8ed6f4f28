"""Ranges and rates of a folded network on sequences, to calibrate fixed-point scales on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..nn.folded import Array, Folded, Neurons
from .reference import centred, trajectory

# Values closer to a grid than this share of its pitch count as lying on it.
GRID = 1e-4


@dataclass(frozen=True)
class Observed:
    """Ranges and rates over all samples."""

    z: list[Array]
    """The largest |z| of each channel, before the first layer and after each."""
    states: list[list[Array]]
    """The largest |u| or |r| of each neuron, for each layer and group; empty for spatial neurons."""
    rates: list[Array]
    """Spikes per step, for each layer."""
    tokens: Array
    """The frequency of each token; empty for values."""
    origin: Array
    """[inputs]: the smallest value; empty for tokens."""
    pitch: Array
    """[inputs]: the distance between the values of neighbouring integers."""


def observe(folded: Folded, samples: Sequence[Array], input_bits: int) -> Observed:
    """Run all samples in float64 and record ranges and rates."""
    folded = folded.astype(np.float64)
    origin, pitch = _grid(np.concatenate([np.asarray(x) for x in samples]), folded.tokens, input_bits)
    z_most = [np.zeros(folded.table.shape[1]), *(np.zeros(layer.rows.shape[1]) for layer in folded.layers)]
    states = [
        [np.zeros(0 if group.kind == "spatial" else group.count) for group in layer.neurons] for layer in folded.layers
    ]
    spikes = [np.zeros(len(layer.rows)) for layer in folded.layers]
    tokens, steps = np.zeros(len(folded.table) if folded.tokens else 0), 0
    for x in map(np.asarray, samples):
        steps += len(x)
        if folded.tokens:
            tokens += np.bincount(x, minlength=len(tokens))
        z = folded.table[x] if folded.tokens else centred(folded, x.astype(np.float64)) @ folded.table
        z_most[0] = np.maximum(z_most[0], np.abs(z).max(0))
        for number, layer in enumerate(folded.layers):
            # The second group runs in reverse.
            turns = [1, -1][: len(layer.neurons)]
            groups = zip(layer.neurons, states[number], turns, strict=True)
            fired = np.concatenate([_fire(group, z[::turn], most)[::turn] for group, most, turn in groups], 1)
            spikes[number] += fired.sum(0)
            added = fired.astype(np.float64) @ layer.rows
            z = added if layer.fresh else z + added
            z_most[number + 1] = np.maximum(z_most[number + 1], np.abs(z).max(0))
            if layer.clear is not None:
                z = np.where(layer.clear, 0.0, z)
    return Observed(
        z=z_most,
        states=states,
        rates=[each / steps for each in spikes],
        tokens=tokens / steps,
        origin=origin,
        pitch=pitch,
    )


def _fire(neurons: Neurons, z: Array, most: Array) -> Array:
    """Spikes [T, N], bool; raises `most` to the largest state, as it is before a reset."""
    if neurons.kind == "spatial":
        return neurons.sign * z >= neurons.threshold
    fired = np.zeros(z.shape, bool)
    for t, (u, r, spikes) in enumerate(trajectory(neurons, z)):
        np.maximum(most, np.maximum(np.abs(u), np.abs(r)), out=most)
        fired[t] = spikes
    return fired


def _grid(x: Array, tokens: bool, bits: int) -> tuple[Array, Array]:
    """Origin and pitch of an input: of the grid on which its values lie (pixels), or else of 2^bits - 1 equal steps."""
    if tokens:
        return np.zeros(0), np.zeros(0)
    x = x.astype(np.float64)
    origin, span = x.min(0), np.ptp(x, 0)
    pitch = np.where(span == 0, 1.0, span / ((1 << bits) - 1))
    for i in np.flatnonzero(span):
        values = np.unique(x[:, i] - origin[i])
        gaps = np.diff(values)
        # Float32 pixels form a grid but for rounding: a gap of that size is none.
        gap = gaps[gaps > GRID * pitch[i]].min()
        finer = span[i] / max(np.round(span[i] / gap), 1)
        off = np.abs(values / finer - np.round(values / finer)).max()
        if off < 10 * GRID and span[i] / finer < (1 << bits) - 0.5:
            pitch[i] = finer
    return origin, pitch
