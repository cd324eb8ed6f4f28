"""The walk of a network of integers in Numba, one sequence a call; `simulate` packs it and calls.

Bit for bit what `reference_integer` gives: integers have no rounding to agree on but the one written there.
"""

import numba
import numpy as np

from .kernels import HARD, MEAN, PRF, SOFT, SPATIAL

# Integers of the network, then those of its layers, LAYER each. Places are indices into `numbers` and `rows`.
TOKENS, INPUTS, ENTRY, WIDTH, CLASSES, POOL, LAYERS, TABLE, SHIFT, BASE, HEAD, BIAS, DROP, TOP, BITS = range(15)
FIRST = 15
KIND, COUNT, OUTPUTS, FRESH, RESET, SIGN, THRESHOLD, CURRENT, RE, IM, MOVE, ROWS, LIFT, FALL, KEEP = range(15)
LAYER = 15


@numba.njit(cache=True, nogil=True)
def walk(whole, numbers, rows, x, state, fired, scores):
    """x is [steps, inputs] or [steps, 1]; everything behind it is written, and comes as zeros.

    state      [2, neurons]: u and r; of spatial neurons they stay zero
    fired      [steps, neurons] uint8
    scores     [1 or steps, classes]
    """
    most, widest = 0, whole[ENTRY]
    for number in range(whole[LAYERS]):
        layer = whole[FIRST + LAYER * number : FIRST + LAYER * (number + 1)]
        most, widest = max(most, layer[COUNT]), max(widest, layer[OUTPUTS])
    z, added, active = np.zeros(widest, np.int64), np.zeros(widest, np.int32), np.zeros(most + 1, np.int64)
    total = np.zeros(whole[WIDTH], np.int64)
    top = whole[TOP]
    for t in range(len(x)):
        _input(whole, numbers, x[t], z)
        place = 0
        for number in range(whole[LAYERS]):
            layer = whole[FIRST + LAYER * number : FIRST + LAYER * (number + 1)]
            n, outputs = layer[COUNT], layer[OUTPUTS]
            firing = _fire(layer, numbers, z, state[:, place : place + n], active, whole[BITS], top)
            added[:outputs] = 0
            for i in range(firing):
                fired[t, place + active[i]] = 1
                at = layer[ROWS] + active[i] * outputs
                row = rows[at : at + outputs]
                for j in range(outputs):
                    added[j] += row[j]
            place += n
            lift, keep = numbers[layer[LIFT] : layer[LIFT] + outputs], layer[KEEP]
            drop = numbers[layer[FALL] : layer[FALL] + outputs]
            for j in range(outputs):
                moved = np.int64(added[j]) << lift[j]
                z[j] = _held(moved if layer[FRESH] else _rounded(z[j], drop[j]) + moved, top)
                if keep >= 0 and numbers[keep + j] == 0:
                    z[j] = 0
        for i in range(whole[WIDTH]):
            read = _rounded(z[i], whole[DROP])
            total[i] = total[i] + read if whole[POOL] == MEAN else read
        if len(scores) > 1 or t == len(x) - 1:
            times = t + 1 if whole[POOL] == MEAN else 1
            _scores(whole, numbers, total, times, scores[t if len(scores) > 1 else 0])


@numba.njit(cache=True, nogil=True)
def _held(x, top):
    return min(max(x, -top), top)


@numba.njit(cache=True, nogil=True)
def _rounded(x, shift):
    return (x + ((np.int64(1) << shift) >> 1)) >> shift


@numba.njit(cache=True, nogil=True)
def _input(whole, numbers, x, z):
    width, top = whole[ENTRY], whole[TOP]
    shift = numbers[whole[SHIFT] : whole[SHIFT] + width]
    if whole[TOKENS]:
        at = whole[TABLE] + x[0] * width
        for i in range(width):
            z[i] = _held(numbers[at + i] << shift[i], top)
        return
    for i in range(width):
        value = numbers[whole[BASE] + i]
        for j in range(whole[INPUTS]):
            value += x[j] * numbers[whole[TABLE] + j * width + i]
        z[i] = _held(_rounded(value, shift[i]), top)


@numba.njit(cache=True, nogil=True)
def _fire(layer, numbers, z, state, active, bits, top):
    """Advances the neurons of a layer; `active` begins with those that fire, and their number is returned."""
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
            u[i] = _held(_rounded(re[i] * before - im[i] * r[i] + moved, bits), top)
            r[i] = _held(_rounded(im[i] * before + re[i] * r[i], bits), top)
        else:
            u[i] = _held(_rounded(re[i] * before + moved, bits), top)
    for i in range(n):
        active[firing] = i
        firing += u[i] > threshold[i]
    for a in range(firing):
        i = active[a]
        if reset == SOFT:
            u[i] = _held(u[i] - (threshold[i] + 1), top)
        elif reset == HARD:
            u[i] = 0
    return firing


@numba.njit(cache=True, nogil=True)
def _scores(whole, numbers, total, times, scores):
    classes = whole[CLASSES]
    for k in range(classes):
        scores[k] = times * numbers[whole[BIAS] + k]
    for i in range(whole[WIDTH]):
        for k in range(classes):
            scores[k] += total[i] * numbers[whole[HEAD] + i * classes + k]


@numba.njit(cache=True, nogil=True)
def digest(fired, states):
    """32 bits that depend on every spike and its time, and on the last states: FNV-1a, with a mark after each step."""
    value = np.uint32(2166136261)
    for t in range(fired.shape[0]):
        for i in range(fired.shape[1]):
            if fired[t, i]:
                value = np.uint32((value ^ np.uint32(i)) * np.uint32(16777619))
        value = np.uint32((value ^ np.uint32(0xFFFFFFFF)) * np.uint32(16777619))
    for state in states:
        value = np.uint32((value ^ np.uint32(state)) * np.uint32(16777619))
    return value
