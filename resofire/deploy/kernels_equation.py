"""The machine that runs the equations of neurons in streams; `machine` makes its instructions.

An instruction is LENGTH integers: the operation, the register that it writes, and three operands, each a space and an
index into it. Registers, states and numbers are vectors of one value per channel. Register 0 is the current, then come
the next value of each state and the spikes; the others are temporary.
"""

import numba
import numpy as np

LENGTH = 8
REGISTER, NUMBER, STATE = range(3)
OPERATIONS = (
    "copy", "add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "abs", "minimum",
    "maximum", "pow", "where", "gt", "ge", "lt", "le", "eq", "ne", "and", "or", "not", "spike",
)  # fmt: skip
(
    COPY, ADD, SUB, MUL, DIV, NEG, EXP, LOG, SQRT, SIN, COS, TANH, SIGMOID, ABS, MINIMUM, MAXIMUM, POW, WHERE, GT, GE,
    LT, LE, EQ, NE, AND, OR, NOT, SPIKE,
) = range(len(OPERATIONS))  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _operand(space, index, n, registers, numbers, state, base):
    if space == REGISTER:
        return registers[index * n : (index + 1) * n]
    if space == NUMBER:
        return numbers[index : index + n]
    at = base + (index >> 1) * n
    return state[index & 1, at : at + n]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def run(code, n, registers, numbers, state, base):
    """Run all instructions.

    Args:
        code: int64.
        n: Channels.
        registers: [registers · n], written.
        numbers: Constants and coefficients.
        state: [2, ...]: state k lies in row k % 2, from base + k // 2 · n on.
        base: Where the states of this layer begin.
    """
    for at in range(0, len(code), LENGTH):
        op = code[at]
        d = registers[code[at + 1] * n : (code[at + 1] + 1) * n]
        a = _operand(code[at + 2], code[at + 3], n, registers, numbers, state, base)
        b = _operand(code[at + 4], code[at + 5], n, registers, numbers, state, base)
        c = _operand(code[at + 6], code[at + 7], n, registers, numbers, state, base)
        if op == ADD:
            for i in range(n):
                d[i] = a[i] + b[i]
        elif op == SUB:
            for i in range(n):
                d[i] = a[i] - b[i]
        elif op == MUL:
            for i in range(n):
                d[i] = a[i] * b[i]
        elif op == DIV:
            for i in range(n):
                d[i] = a[i] / b[i]
        elif op == NEG:
            for i in range(n):
                d[i] = -a[i]
        elif op == COPY:
            for i in range(n):
                d[i] = a[i]
        elif op == WHERE:
            for i in range(n):
                d[i] = b[i] if a[i] != 0 else c[i]
        elif op >= GT:
            _compare(op, n, a, b, d)
        else:
            _function(op, n, a, b, d)


@numba.njit(cache=True, nogil=True)
def _compare(op, n, a, b, d):
    """Comparisons, 1 or 0, and what is made of them."""
    for i in range(n):
        if op == SPIKE:
            holds = a[i] >= 0
        elif op == GT:
            holds = a[i] > b[i]
        elif op == GE:
            holds = a[i] >= b[i]
        elif op == LT:
            holds = a[i] < b[i]
        elif op == LE:
            holds = a[i] <= b[i]
        elif op == EQ:
            holds = a[i] == b[i]
        elif op == NE:
            holds = a[i] != b[i]
        elif op == AND:
            holds = a[i] != 0 and b[i] != 0
        elif op == OR:
            holds = a[i] != 0 or b[i] != 0
        else:
            holds = a[i] == 0
        d[i] = 1 if holds else 0


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _function(op, n, a, b, d):
    for i in range(n):
        if op == EXP:
            d[i] = np.exp(a[i])
        elif op == LOG:
            d[i] = np.log(a[i])
        elif op == SQRT:
            d[i] = np.sqrt(a[i])
        elif op == SIN:
            d[i] = np.sin(a[i])
        elif op == COS:
            d[i] = np.cos(a[i])
        elif op == TANH:
            d[i] = np.tanh(a[i])
        elif op == SIGMOID:
            d[i] = 1 / (1 + np.exp(-a[i]))
        elif op == ABS:
            d[i] = abs(a[i])
        elif op == MINIMUM:
            d[i] = min(a[i], b[i])
        elif op == MAXIMUM:
            d[i] = max(a[i], b[i])
        else:
            d[i] = a[i] ** b[i]
