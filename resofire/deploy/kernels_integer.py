"""A fixed-point network in Numba, one sequence a call; `simulate` packs the network and calls.

Bit for bit what `reference.run_integer` gives: integers are rounded only where that says so.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from .kernels import HARD, LEAKY, MEAN, PRF, SOFT, SPATIAL, WINDOW

# Integers of the network, then LAYER of them for each layer. TABLE, HEAD, SIGN, … are indices into `numbers`.
TOKENS, INPUTS, ENTRY, WIDTH, CLASSES, POOL, LAYERS, TABLE, SHIFT, BASE, HEAD, BIAS, HEAD_DROP, TOP, BITS = range(15)
POOL_STEPS, LEAK_FACTOR, LEAK_SHIFT, LEAK_FRACTION, LEAK_DROP = range(15, 20)
FIRST = 20
KIND, COUNT, OUTPUTS, FRESH, RESET, SIGN, THRESHOLD, CURRENT, RE, IM, MOVE, ROWS, LIFT, DROP, KEEP = range(15)
LAYER = 15


class Network(NamedTuple):
    """A packed network."""

    layout: Any
    """int64: sizes and indices."""
    numbers: Any
    """int64: all arrays but the rows."""
    rows: Any
    """int8: all rows, in the order of the layers."""


class Output(NamedTuple):
    """Arrays for the results, initially zero."""

    state: Any
    """[2, neurons]: u and r after the last step; zero for spatial neurons."""
    fired: Any
    """[steps, neurons] uint8."""
    scores: Any
    """[1 or steps, classes]."""


@numba.njit(cache=True, nogil=True)
def walk(network, x, output):
    """Run x, [steps, inputs] values or [steps, 1] tokens, and write the output."""
    layout, numbers, rows = network.layout, network.numbers, network.rows
    state, fired, scores = output.state, output.fired, output.scores
    most, widest = 0, layout[ENTRY]
    for number in range(layout[LAYERS]):
        layer = layout[FIRST + LAYER * number : FIRST + LAYER * (number + 1)]
        most, widest = max(most, layer[COUNT]), max(widest, layer[OUTPUTS])
    z, added, active = np.zeros(widest, np.int64), np.zeros(widest, np.int32), np.zeros(most + 1, np.int64)
    # The last channel of a leaky sum is its weight, whose z is always 1.
    total = np.zeros(layout[WIDTH] + 1, np.int64)
    ring = np.zeros((layout[POOL_STEPS] if layout[POOL] == WINDOW else 0, layout[WIDTH]), np.int64)
    for t in range(len(x)):
        _input(layout, numbers, x[t], z)
        place = 0
        for number in range(layout[LAYERS]):
            layer = layout[FIRST + LAYER * number : FIRST + LAYER * (number + 1)]
            n, outputs = layer[COUNT], layer[OUTPUTS]
            firing = _fire(network, layer, z, state[:, place : place + n], active)
            added[:outputs] = 0
            for i in range(firing):
                fired[t, place + active[i]] = 1
                at = layer[ROWS] + active[i] * outputs
                row = rows[at : at + outputs]
                for j in range(outputs):
                    added[j] += row[j]
            place += n
            _synapses(network, layer, z, added)
        _pool(layout, z, total, ring, t)
        if len(scores) > 1 or t == len(x) - 1:
            _scores(layout, numbers, total, _weight(layout, total, t + 1), scores[t if len(scores) > 1 else 0])


@numba.njit(cache=True, nogil=True)
def _pool(layout, z, total, ring, t):
    for i in range(layout[WIDTH]):
        read = _rounded(z[i], layout[HEAD_DROP])
        if layout[POOL] == MEAN:
            total[i] += read
        elif layout[POOL] == LEAKY:
            total[i] = _leaked(layout, total[i], read)
        elif layout[POOL] == WINDOW:
            slot = t % len(ring)
            total[i] += read - ring[slot, i]
            ring[slot, i] = read
        else:
            total[i] = read
    if layout[POOL] == LEAKY:
        total[layout[WIDTH]] = _leaked(layout, total[layout[WIDTH]], np.int64(1))


@numba.njit(cache=True, nogil=True)
def _leaked(layout, total, read):
    return total - _rounded(total * layout[LEAK_FACTOR], layout[LEAK_SHIFT]) + (read << layout[LEAK_FRACTION])


@numba.njit(cache=True, nogil=True)
def _weight(layout, total, steps):
    """The factor on the bias."""
    if layout[POOL] == LEAKY:
        return _rounded(total[layout[WIDTH]], layout[LEAK_DROP])
    if layout[POOL] == WINDOW:
        return min(steps, layout[POOL_STEPS])
    return steps if layout[POOL] == MEAN else 1


@numba.njit(cache=True, nogil=True)
def _synapses(network, layer, z, added):
    numbers, top = network.numbers, network.layout[TOP]
    lift, drop, keep, outputs = layer[LIFT], layer[DROP], layer[KEEP], layer[OUTPUTS]
    for j in range(outputs):
        moved = np.int64(added[j]) << numbers[lift + j]
        z[j] = _saturated(moved if layer[FRESH] else _rounded(z[j], numbers[drop + j]) + moved, top)
        if keep >= 0 and numbers[keep + j] == 0:
            z[j] = 0


@numba.njit(cache=True, nogil=True)
def _saturated(x, top):
    return min(max(x, -top), top)


@numba.njit(cache=True, nogil=True)
def _rounded(x, shift):
    return (x + ((np.int64(1) << shift) >> 1)) >> shift


@numba.njit(cache=True, nogil=True)
def _input(layout, numbers, x, z):
    width, top = layout[ENTRY], layout[TOP]
    shift = numbers[layout[SHIFT] : layout[SHIFT] + width]
    if layout[TOKENS]:
        at = layout[TABLE] + x[0] * width
        for i in range(width):
            z[i] = _saturated(numbers[at + i] << shift[i], top)
        return
    for i in range(width):
        value = numbers[layout[BASE] + i]
        for j in range(layout[INPUTS]):
            value += x[j] * numbers[layout[TABLE] + j * width + i]
        z[i] = _saturated(_rounded(value, shift[i]), top)


@numba.njit(cache=True, nogil=True)
def _fire(network, layer, z, state, active):
    """Advance the neurons of a layer; `active` begins with those that fire. Returns how many do."""
    numbers, bits, top = network.numbers, network.layout[BITS], network.layout[TOP]
    n, kind, reset = layer[COUNT], layer[KIND], layer[RESET]
    sign, threshold = numbers[layer[SIGN] : layer[SIGN] + n], numbers[layer[THRESHOLD] : layer[THRESHOLD] + n]
    firing = 0
    if kind == SPATIAL:
        for i in range(n):
            active[firing] = i
            firing += sign[i] * z[i] > threshold[i]
        return firing
    current, move = numbers[layer[CURRENT] : layer[CURRENT] + n], numbers[layer[MOVE] : layer[MOVE] + n]
    re, im = numbers[layer[RE] : layer[RE] + n], numbers[layer[IM] : layer[IM] + n]
    u, r = state[0], state[1]
    for i in range(n):
        before, moved = u[i], (sign[i] * z[i] + current[i]) << move[i]
        if kind == PRF:
            u[i] = _saturated(_rounded(re[i] * before - im[i] * r[i] + moved, bits), top)
            r[i] = _saturated(_rounded(im[i] * before + re[i] * r[i], bits), top)
        else:
            u[i] = _saturated(_rounded(re[i] * before + moved, bits), top)
    for i in range(n):
        active[firing] = i
        firing += u[i] > threshold[i]
    for a in range(firing):
        i = active[a]
        if reset == SOFT:
            u[i] = _saturated(u[i] - (threshold[i] + 1), top)
        elif reset == HARD:
            u[i] = 0
    return firing


@numba.njit(cache=True, nogil=True)
def _scores(layout, numbers, total, times, scores):
    classes = layout[CLASSES]
    for k in range(classes):
        scores[k] = times * numbers[layout[BIAS] + k]
    for i in range(layout[WIDTH]):
        read = _rounded(total[i], layout[LEAK_DROP])
        for k in range(classes):
            scores[k] += read * numbers[layout[HEAD] + i * classes + k]


@numba.njit(cache=True, nogil=True)
def digest(fired, states):
    """32 bits that depend on every spike, its time and the last states: FNV-1a, with a mark after each step."""
    value = np.uint32(2166136261)
    for t in range(fired.shape[0]):
        for i in range(fired.shape[1]):
            if fired[t, i]:
                value = np.uint32((value ^ np.uint32(i)) * np.uint32(16777619))
        value = np.uint32((value ^ np.uint32(0xFFFFFFFF)) * np.uint32(16777619))
    for state in states:
        value = np.uint32((value ^ np.uint32(state)) * np.uint32(16777619))
    return value
