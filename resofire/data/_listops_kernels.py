# mypy: ignore-errors
# Code for another compiler: its types are Numba's.
"""ListOps, compiled: drawing expressions, evaluating them, reading them from text. Tokens as in `listops.SYMBOLS`."""

import numpy as np
from numba import njit

from ._splitmix import STEP, below, mixed, stream

MIN, MAX, MED, SM, END, ZERO = 3, 4, 5, 6, 7, 8  # tokens; digits follow ZERO
DEPTH, ARGUMENTS = 10, 10
SHORTEST, LONGEST = 501, 1999
TOP = np.uint64(62)


@njit(nogil=True)
def reduced(operator, values, count):
    """What an operator makes of its arguments. It sorts them where they are if it has to."""
    if operator == SM:
        total = 0
        for k in range(count):
            total += values[k]
        return total % 10
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
    """Draw number i: its tokens go to `tokens` [LONGEST]. Returns length and value; length 0 if it got too long."""
    state = stream(seed, i)
    values = np.empty((DEPTH, ARGUMENTS), np.int64)
    operators = np.empty(DEPTH, np.int64)
    wanted = np.empty(DEPTH, np.int64)
    held = np.empty(DEPTH, np.int64)
    length, level = 0, 0  # level: how many operators are open; a node's depth is one more
    while True:
        state += STEP
        if level < DEPTH - 1 and mixed(state) >> TOP == 0:  # r <= 1/4
            state += STEP
            wanted[level] = 2 + below(mixed(state), ARGUMENTS - 1)
            state += STEP
            operators[level] = MIN + below(mixed(state), 4)
            held[level] = 0
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
            values[parent, held[parent]] = value
            held[parent] += 1
            if held[parent] < wanted[parent]:
                break
            value = reduced(operators[parent], values[parent], held[parent])
            if length == LONGEST:
                return 0, 0
            tokens[length] = END
            length += 1
            level = parent


@njit(nogil=True, cache=True)
def draws(seed, first, count):
    """Of the draws first .. first + count - 1, those that are kept: tokens end to end, lengths, values."""
    room, kept = 1 << 16, 0
    tokens = np.empty(room, np.uint8)
    used = 0
    lengths = np.empty(count, np.int64)
    values = np.empty(count, np.uint8)
    scratch = np.empty(LONGEST, np.uint8)
    for i in range(first, first + count):
        length, value = drawn(seed, i, scratch)
        if length < SHORTEST:
            continue
        if used + length > room:
            room *= 2
            larger = np.empty(room, np.uint8)
            larger[:used] = tokens[:used]
            tokens = larger
        tokens[used : used + length] = scratch[:length]
        used += length
        lengths[kept] = length
        values[kept] = value
        kept += 1
    return tokens[:used].copy(), lengths[:kept].copy(), values[:kept].copy()


@njit(nogil=True, cache=True)
def parsed(text, tokens):
    """Tokens of one expression as LRA writes it, parentheses and spaces left out. Their number, or -1 - position of
    what is not a token."""
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
    """The value of an expression, or -1 if it is none. Any number of arguments, any depth."""
    size = len(tokens)
    values = np.empty(size + 1, np.int64)
    starts = np.empty(size + 1, np.int64)
    operators = np.empty(size + 1, np.int64)
    held, level = 0, 0
    for at in range(size):
        token = tokens[at]
        if token >= ZERO:
            values[held] = token - ZERO
            held += 1
        elif token == END:
            if level == 0 or held == starts[level - 1]:
                return -1
            level -= 1
            start = starts[level]
            values[start] = reduced(operators[level], values[start:held], held - start)
            held = start + 1
        else:
            operators[level] = token
            starts[level] = held
            level += 1
        if level == 0 and at < size - 1:
            return -1
    return values[0] if level == 0 and held == 1 else -1
