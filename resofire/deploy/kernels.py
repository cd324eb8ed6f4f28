"""A folded network in Numba: for each stream and time step all layers, with no Python in between.

All floats of a network are in one array, all its integers (sizes, indices) in another: a call with a dozen arrays
costs microseconds before it begins. `stream` packs them; the constants below say what is where.

Rows of firing inputs are added in the order of the inputs, in the precision of the accumulators, and no multiplication
is fused with an addition. So a chunk of any size and any number of streams gives the same bits.
"""

import numba
import numpy as np

from . import kernels_equation

# The integers: those of the network, then LAYER of them for each layer, then the instructions of equations, then for
# LEAKY and WINDOW the STEPS of the pool. TABLE, HEAD, SIGN, … are indices into the array of floats.
TOKENS, INPUTS, ENTRY, WIDTH, CLASSES, POOL, LAYERS, TABLE, HEAD, BIAS = range(10)
FIRST = 10
KIND, COUNT, OUTPUTS, FRESH, RESET, SIGN, THRESHOLD, CURRENT, RE, IM, ROWS, KEEP, STATE = range(13)
LAYER = 13
# A layer of an EQUATION has other entries in four of these places: CODE is the index of its first instruction.
GAIN, STATES, CODE, CODE_LENGTH = THRESHOLD, RESET, RE, IM
# Of TOKENS: values whose origin lies before the table.
CENTRED = 2
PRF, LIF, SPATIAL, EQUATION = range(4)
NONE, SOFT, HARD = range(3)
MEAN, LAST, EACH, LEAKY, WINDOW = range(5)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def walk(layout, numbers, x, potentials, totals, steps, counts, scratch, active, fired, scores):
    """Feed x, [streams, steps, inputs] values or [streams, steps, 1] tokens; all arguments after it are written.

    Arrays are positional because unpacking named tuples would take longer than a step.

    Args:
        layout: int64: sizes and indices.
        numbers: Everything else in the network.
        x: The chunk.
        potentials: [streams, 2, temporal neurons]: u and r, or states of an equation in pairs.
        totals: [streams, width of the last z], float64: sums for the read-out; of a WINDOW, its steps follow them.
        steps: [streams]: time steps so far.
        counts: [streams, layers]: spikes so far.
        scratch: [3, widest z or registers of an equation].
        active: [neurons of the largest layer + 1].
        fired: [streams, steps, neurons] uint8, or [streams, 0, neurons]: spikes are not kept.
        scores: [streams, 1, classes] after the last step, or [streams, steps, classes] after each.
    """
    keep, each = fired.shape[1] > 0, scores.shape[1] == x.shape[1]
    for b in range(x.shape[0]):
        z, other = scratch[0], scratch[1]
        for t in range(x.shape[1]):
            _input(layout, numbers, x[b, t], z)
            place = 0
            for number in range(layout[LAYERS]):
                layer = layout[FIRST + LAYER * number : FIRST + LAYER * (number + 1)]
                if layer[KIND] == EQUATION:
                    firing = _fire_equation(layout, layer, numbers, z, potentials[b], scratch[2], active)
                else:
                    firing = _fire(layer, numbers, z, potentials[b], active)
                counts[b, number] += firing
                if keep:
                    for i in range(firing):
                        fired[b, t, place + active[i]] = 1
                    place += layer[COUNT]
                if layer[FRESH]:
                    z, other = other, z
                    z[: layer[OUTPUTS]] = 0
                _add_rows(layer, numbers, z, active, firing)
            steps[b] += 1
            if layout[POOL] == MEAN:
                for i in range(layout[WIDTH]):
                    totals[b, i] += z[i]
            elif layout[POOL] >= LEAKY:
                _forget(layout, z, totals[b], steps[b])
            if each or t == x.shape[1] - 1:
                _scores(layout, numbers, z, totals[b], steps[b], scores[b, t if each else 0])


@numba.njit(cache=True, nogil=True)
def _forget(layout, z, total, steps):
    """Add a step to a leaky sum, or to that of a window."""
    width, most = layout[WIDTH], layout[len(layout) - 1]
    if layout[POOL] == LEAKY:
        decay = 1 - 1 / most
        for i in range(width):
            total[i] = decay * total[i] + z[i]
        return
    slot = (steps - 1) % most
    ring = total[width * (1 + slot) : width * (2 + slot)]
    for i in range(width):
        total[i] += z[i] - ring[i]
        ring[i] = z[i]
    # Rounding errors of sums and differences accumulate, so the sum is recomputed now and then.
    if slot == most - 1:
        total[:width] = 0
        for number in range(1, most + 1):
            for i in range(width):
                total[i] += total[width * number + i]


@numba.njit(cache=True, nogil=True)
def _weight(layout, steps):
    """The divisor of the sums of the read-out."""
    most = layout[len(layout) - 1]
    if layout[POOL] == WINDOW:
        return np.float64(min(steps, most))
    if layout[POOL] == LEAKY and most > 1:
        # W = λ W + 1 after `steps` steps, without a state of its own.
        return -most * np.expm1(steps * np.log1p(-1 / most))
    return np.float64(1 if layout[POOL] == LEAKY else steps)


@numba.njit(cache=True, nogil=True)
def _input(layout, numbers, x, z):
    width = layout[ENTRY]
    if layout[TOKENS] == 1:
        at = layout[TABLE] + np.int64(x[0]) * width
        for i in range(width):
            z[i] = numbers[at + i]
        return
    for j in range(layout[INPUTS]):
        row = numbers[layout[TABLE] + j * width : layout[TABLE] + (j + 1) * width]
        value = x[j]
        if layout[TOKENS] == CENTRED:
            value = value - numbers[layout[TABLE] - layout[INPUTS] + j]
        for i in range(width):
            z[i] = value * row[i] if j == 0 else z[i] + value * row[i]


@numba.njit(cache=True, nogil=True)
def _fire(layer, numbers, z, state, active):
    """Advance the neurons of a layer; `active` begins with those that fire. Returns how many do."""
    n, kind, reset = layer[COUNT], layer[KIND], layer[RESET]
    sign, threshold = numbers[layer[SIGN] : layer[SIGN] + n], numbers[layer[THRESHOLD] : layer[THRESHOLD] + n]
    firing = 0
    if kind == SPATIAL:
        for i in range(n):
            active[firing] = i
            firing += sign[i] * z[i] >= threshold[i]
        return firing
    current, re = numbers[layer[CURRENT] : layer[CURRENT] + n], numbers[layer[RE] : layer[RE] + n]
    u, r = state[0, layer[STATE] : layer[STATE] + n], state[1, layer[STATE] : layer[STATE] + n]
    if kind == PRF:
        im = numbers[layer[IM] : layer[IM] + n]
        for i in range(n):
            before = u[i]
            u[i] = re[i] * before - im[i] * r[i] + (sign[i] * z[i] + current[i])
            r[i] = im[i] * before + re[i] * r[i]
    else:
        for i in range(n):
            u[i] = re[i] * u[i] + (sign[i] * z[i] + current[i])
    for i in range(n):
        active[firing] = i
        firing += u[i] >= threshold[i]
    if reset == SOFT:
        for i in range(firing):
            u[active[i]] -= threshold[active[i]]
    elif reset == HARD:
        for i in range(firing):
            u[active[i]] = 0
    return firing


@numba.njit(cache=True, nogil=True)
def _fire_equation(layout, layer, numbers, z, state, registers, active):
    """As `_fire`, for neurons of any equation."""
    n, states, base = layer[COUNT], layer[STATES], layer[STATE]
    sign, current = numbers[layer[SIGN] : layer[SIGN] + n], numbers[layer[CURRENT] : layer[CURRENT] + n]
    gain = numbers[layer[GAIN] : layer[GAIN] + n]
    for i in range(n):
        registers[i] = gain[i] * (sign[i] * z[i]) + current[i]
    code = layout[layer[CODE] : layer[CODE] + layer[CODE_LENGTH]]
    kernels_equation.run(code, n, registers, numbers, state, base)
    for k in range(states):
        at = base + (k >> 1) * n
        state[k & 1, at : at + n] = registers[(1 + k) * n : (2 + k) * n]
    spikes = registers[(1 + states) * n : (2 + states) * n]
    firing = 0
    for i in range(n):
        active[firing] = i
        firing += spikes[i] != 0
    return firing


@numba.njit(cache=True, nogil=True)
def _add_rows(layer, numbers, z, active, firing):
    outputs = layer[OUTPUTS]
    for i in range(firing):
        at = layer[ROWS] + active[i] * outputs
        row = numbers[at : at + outputs]
        for j in range(outputs):
            z[j] += row[j]
    if layer[KEEP] >= 0:
        kept = numbers[layer[KEEP] : layer[KEEP] + outputs]
        for j in range(outputs):
            if kept[j] == 0:
                z[j] = 0


@numba.njit(cache=True, nogil=True)
def _scores(layout, numbers, z, total, steps, scores):
    classes, at = layout[CLASSES], layout[HEAD]
    sums, weight = layout[POOL] != LAST and layout[POOL] != EACH, _weight(layout, steps)
    for k in range(classes):
        scores[k] = numbers[layout[BIAS] + k]
    for i in range(layout[WIDTH]):
        value = total[i] / weight if sums else np.float64(z[i])
        for k in range(classes):
            scores[k] += value * numbers[at + i * classes + k]
