"""Folded networks, in floats and in fixed point, as plain NumPy loops over time.

These are the definitions: streams, simulations and exported files must agree with them.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from ..nn.folded import Array, Folded, Neurons
from . import equation
from .quantized import IntegerNeurons, Quantized

Group = TypeVar("Group")


class Result(NamedTuple):
    """The output of a network on one sequence."""

    scores: Array
    """[classes], or [T, classes] with pool "none"."""
    spikes: list[Array]
    """For each layer [T, neurons], bool; two directions side by side."""


def run(folded: Folded, x: Array) -> Result:
    """Run one sequence, tokens [T] or values [T, inputs], through a folded network."""
    z = folded.table[x] if folded.tokens else centred(folded, np.asarray(x, folded.dtype)) @ folded.table
    spikes = []
    for layer in folded.layers:
        fired = both_directions(layer.neurons, z, _fire)
        added = fired.astype(layer.rows.dtype) @ layer.rows
        z = added if layer.fresh else z + added
        if layer.clear is not None:
            z = np.where(layer.clear, z.dtype.type(0), z)
        spikes.append(fired)
    return Result(pool(z, folded.pool, folded.pool_steps) @ folded.head + folded.bias, spikes)


def pool(z: Array, how: str, steps: int | None) -> Array:
    """The read-out of z [T, D]: [D], or z itself with pool "none"; see `resofire.nn.folded`."""
    if how == "none":
        return z
    if how == "last":
        return z[-1]
    if how == "mean":
        return z.mean(0)
    return pool_each_step(z, how, steps)[-1]


def pool_each_step(z: Array, how: str, steps: int | None) -> Array:
    """The read-out after every step, [T, D]."""
    if how == "mean":
        return (np.cumsum(z, 0, np.float64) / np.arange(1, len(z) + 1)[:, None]).astype(z.dtype)
    if how == "window":
        assert steps is not None
        return np.stack([z[max(0, t + 1 - steps) : t + 1].mean(0, np.float64) for t in range(len(z))]).astype(z.dtype)
    if how == "leaky":
        assert steps is not None
        decay, total, weight, pooled = 1 - 1 / steps, np.zeros(z.shape[1]), 0.0, []
        for now in z:
            total, weight = decay * total + now, decay * weight + 1
            pooled.append(total / weight)
        return np.stack(pooled).astype(z.dtype)
    return z


def centred(folded: Folded, x: Array) -> Array:
    """Values [T, inputs] less the origin of the network."""
    return x if folded.origin is None else x - folded.origin


def trajectory(neurons: Neurons, z: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Run PRF or LIF neurons on z [T, N]: in each step u and r before the reset, and the spikes, each [N]."""
    u, r = np.zeros((2, neurons.count), z.dtype)
    for drive in neurons.sign * z:
        if neurons.kind == "prf":
            u, r = (
                neurons.phi_re * u - neurons.phi_im * r + (drive + neurons.current),
                neurons.phi_im * u + neurons.phi_re * r,
            )
        else:
            u = neurons.phi_re * u + (drive + neurons.current)
        fired = u >= neurons.threshold
        yield u, r, fired
        if neurons.reset == "soft":
            u = np.where(fired, u - neurons.threshold, u)
        elif neurons.reset == "hard":
            u = np.where(fired, u.dtype.type(0), u)


def both_directions(groups: tuple[Group, ...], z: Array, run_group: Callable[[Group, Array], Array]) -> Array:
    """Concatenate `run_group` of each group, [T, N]; the second group reads z [T, N] in reverse."""
    forward, *reverse = groups
    return np.concatenate([run_group(forward, z), *(run_group(group, z[::-1])[::-1] for group in reverse)], 1)


def run_integer(quantized: Quantized, x: Array) -> Result:
    """Run one sequence through a fixed-point network; the scores are int64."""
    x, top = encoded(quantized, x), quantized.top
    if quantized.tokens:
        z = _saturated(quantized.table[x] << quantized.shift, top)
    else:
        z = _saturated(_rounded(quantized.base + x @ quantized.table, quantized.shift), top)
    spikes = []
    for layer in quantized.layers:
        fired = both_directions(layer.neurons, z, lambda group, z: _fire_integer(group, z, quantized))
        added = (fired.astype(np.int64) @ layer.rows.astype(np.int64)) << layer.lift
        z = _saturated(added if layer.fresh else _rounded(z, layer.drop) + added, top)
        if layer.clear is not None:
            z = np.where(layer.clear, 0, z)
        spikes.append(fired)
    z = _rounded(z, np.int64(quantized.head_drop))
    if quantized.pool == "none":
        return Result(z @ quantized.head + quantized.bias, spikes)
    pooled, weight = _pool_integer(quantized, z)
    return Result(pooled @ quantized.head + weight * quantized.bias, spikes)


def _pool_integer(quantized: Quantized, z: Array) -> tuple[Array, int]:
    """The sum of the read-out [D] and its weight."""
    if quantized.pool == "last":
        return z[-1], 1
    if quantized.pool == "window":
        z = z[-(quantized.pool_steps or 0) :]
    if quantized.pool != "leaky":
        return z.sum(0), len(z)
    leak, total = quantized.leak, np.zeros(z.shape[1] + 1, np.int64)
    shift = np.int64(leak.shift)
    # The weight is one more channel, whose z is always 1.
    for now in np.pad(z, ((0, 0), (0, 1)), constant_values=1):
        total = total - _rounded(total * leak.factor, shift) + (now << leak.fraction)
    total = _rounded(total, np.int64(leak.drop))
    return total[:-1], int(total[-1])


def encoded(quantized: Quantized, x: Array) -> Array:
    """A sequence as integers.

    Raises:
        ValueError: It cannot be encoded, is empty, or is longer than the sums can hold.
    """
    x = quantized.encode(x)
    if not 0 < len(x) <= quantized.most_steps:
        raise ValueError(f"run: x must have from 1 to {quantized.most_steps} steps, got {len(x)}")
    return x


def _fire(neurons: Neurons, z: Array) -> Array:
    """The spikes of one group, [T, N], bool."""
    if neurons.kind == "equation":
        return equation.fire(neurons, z)
    if neurons.kind == "spatial":
        return neurons.sign * z >= neurons.threshold
    fired = np.zeros(z.shape, bool)
    for t, (_, _, spikes) in enumerate(trajectory(neurons, z)):
        fired[t] = spikes
    return fired


def _fire_integer(neurons: IntegerNeurons, z: Array, quantized: Quantized) -> Array:
    drive = neurons.sign * z + neurons.current
    if neurons.kind == "spatial":
        return drive > neurons.threshold
    top, bits = quantized.top, np.int64(quantized.phi_bits)
    re, im = neurons.phi_re, neurons.phi_im
    u, r = np.zeros((2, neurons.count), np.int64)
    fired = np.zeros(z.shape, bool)
    for t, now in enumerate(drive << neurons.lift):
        u, r = _saturated(_rounded(re * u - im * r + now, bits), top), _saturated(_rounded(im * u + re * r, bits), top)
        fired[t] = u > neurons.threshold
        if neurons.reset == "soft":
            u = np.where(fired[t], _saturated(u - (neurons.threshold + 1), top), u)
        elif neurons.reset == "hard":
            u = np.where(fired[t], 0, u)
    return fired


def _saturated(x: Array, top: int) -> Array:
    return np.clip(x, -top, top)


def _rounded(x: Array, shift: Array | np.int64) -> Array:
    """x >>° shift. A shift of 0 adds 1 >> 1 = 0."""
    return (x + ((np.int64(1) << shift) >> 1)) >> shift
