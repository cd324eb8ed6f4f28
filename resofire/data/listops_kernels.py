# mypy: ignore-errors
# Compiled by Numba, which infers the types.
"""ListOps kernels: sample expressions, evaluate them, parse them. Tokens as in `listops.SYMBOLS`."""

import numpy as np
from numba import njit

from .splitmix import STEP, below, mixed, stream

MIN, MAX, MED, SM, END, ZERO = 3, 4, 5, 6, 7, 8  # tokens; digits follow ZERO
DEPTH, ARGUMENTS = 10, 10
SHORTEST, LONGEST = 501, 1999
TOP = np.uint64(62)


@njit(nogil=True)
def ranked(operator, values, count):
    """MIN, MAX or median of any number of digits, in linear time."""
    first = 0 if operator == MIN else count - 1 if operator == MAX else (count - 1) // 2
    last = count // 2 if operator == MED else first
    total, seen = 0, 0
    for digit in range(10):
        before = seen
        for k in range(count):
            if values[k] == digit:
                seen += 1
        if before <= first < seen:
            total += digit
        if before <= last < seen:
            total += digit
    return total // 2


@njit(nogil=True)
def reduced(operator, values, count):
    """The value of an operator; may sort its arguments in place."""
    if operator == SM:
        total = 0
        for k in range(count):
            total += values[k]
        return total % 10
    if count > ARGUMENTS:
        return ranked(operator, values, count)
    for k in range(1, count):
        value, place = values[k], k
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value
    if operator == MIN:
        return values[0]
    if operator == MAX:
        return values[count - 1]
    return (values[(count - 1) // 2] + values[count // 2]) // 2


@njit(nogil=True)
def drawn(seed, i, tokens):
    """Sample expression i into `tokens` [LONGEST]. Returns length and value; length 0 if it is too long."""
    state = stream(seed, i)
    values = np.empty((DEPTH, ARGUMENTS), np.int64)
    operators = np.empty(DEPTH, np.int64)
    arguments = np.empty(DEPTH, np.int64)
    filled = np.empty(DEPTH, np.int64)
    length, level = 0, 0  # level: number of open operators; a node has depth level + 1
    while True:
        state += STEP
        if level < DEPTH - 1 and mixed(state) >> TOP == 0:  # r <= 1/4
            state += STEP
            arguments[level] = 2 + below(mixed(state), ARGUMENTS - 1)
            state += STEP
            operators[level] = MIN + below(mixed(state), 4)
            filled[level] = 0
            if length == LONGEST:
                return 0, 0
            tokens[length] = operators[level]
            length += 1
            level += 1
            continue
        state += STEP
        value = below(mixed(state), 10)
        if length == LONGEST:
            return 0, 0
        tokens[length] = ZERO + value
        length += 1
        while True:
            if level == 0:
                return length, value
            parent = level - 1
            values[parent, filled[parent]] = value
            filled[parent] += 1
            if filled[parent] < arguments[parent]:
                break
            value = reduced(operators[parent], values[parent], filled[parent])
            if length == LONGEST:
                return 0, 0
            tokens[length] = END
            length += 1
            level = parent


@njit(nogil=True, cache=True)
def draws(seed, first, count):
    """The expressions of first .. first + count - 1 that are kept: tokens end to end, lengths, values."""
    capacity, kept = 1 << 16, 0
    tokens = np.empty(capacity, np.uint8)
    used = 0
    lengths = np.empty(count, np.int64)
    values = np.empty(count, np.uint8)
    scratch = np.empty(LONGEST, np.uint8)
    for i in range(first, first + count):
        length, value = drawn(seed, i, scratch)
        if length < SHORTEST:
            continue
        if used + length > capacity:
            capacity *= 2
            larger = np.empty(capacity, np.uint8)
            larger[:used] = tokens[:used]
            tokens = larger
        tokens[used : used + length] = scratch[:length]
        used += length
        lengths[kept] = length
        values[kept] = value
        kept += 1
    return tokens[:used].copy(), lengths[:kept].copy(), values[:kept].copy()


@njit(nogil=True, cache=True)
def parts(tokens, bounds, shortest, longest, seed):
    """One sub-expression of `shortest` to `longest` tokens of each expression that has any, chosen by `seed`.

    Returns their starts and lengths; length 0 for an expression without one.
    """
    count = len(bounds) - 1
    starts = np.empty(count, np.int64)
    lengths = np.zeros(count, np.int64)
    opened = np.empty(len(tokens) + 1, np.int64)
    for i in range(count):
        state, level, candidates = stream(seed, i), 0, 0
        for at in range(bounds[i], bounds[i + 1]):
            if tokens[at] == END:
                level -= 1
                length = at + 1 - opened[level]
                if shortest <= length <= longest:
                    # Candidate n replaces the choice with probability 1 / n, so that all are equally likely.
                    candidates += 1
                    state += STEP
                    if below(mixed(state), candidates) == 0:
                        starts[i], lengths[i] = opened[level], length
            elif tokens[at] < END:
                opened[level] = at
                level += 1
    return starts, lengths


@njit(nogil=True, cache=True)
def parsed(text, tokens):
    """Parse an expression as LRA writes it, without its parentheses. Returns the number of tokens, or -1 - position of
    what is no token."""
    count, at, size = 0, 0, len(text)
    while at < size:
        byte = text[at]
        if byte == 32 or byte == 40 or byte == 41:
            at += 1
            continue
        if byte == 93:
            token, width = END, 1
        elif 48 <= byte <= 57:
            token, width = ZERO + byte - 48, 1
        elif byte == 91 and at + 2 < size and text[at + 1] == 83 and text[at + 2] == 77:  # [SM
            token, width = SM, 3
        elif byte == 91 and at + 3 < size and text[at + 1] == 77:
            second, third = text[at + 2], text[at + 3]
            width = 4
            if second == 73 and third == 78:  # [MIN
                token = MIN
            elif second == 65 and third == 88:  # [MAX
                token = MAX
            elif second == 69 and third == 68:  # [MED
                token = MED
            else:
                return -1 - at
        else:
            return -1 - at
        at += width
        if at < size and text[at] != 32:
            return -1 - at
        tokens[count] = token
        count += 1
    return count


@njit(nogil=True, cache=True)
def evaluated(tokens):
    """The value of an expression of any width and depth, or -1 if it is none."""
    size = len(tokens)
    values = np.empty(size + 1, np.int64)
    starts = np.empty(size + 1, np.int64)
    operators = np.empty(size + 1, np.int64)
    filled, level = 0, 0
    for at in range(size):
        token = tokens[at]
        if token >= ZERO:
            values[filled] = token - ZERO
            filled += 1
        elif token == END:
            if level == 0 or filled == starts[level - 1]:
                return -1
            level -= 1
            start = starts[level]
            values[start] = reduced(operators[level], values[start:filled], filled - start)
            filled = start + 1
        else:
            operators[level] = token
            starts[level] = filled
            level += 1
        if level == 0 and at < size - 1:
            return -1
    return values[0] if level == 0 and filled == 1 else -1
