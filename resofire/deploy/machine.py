"""Equations in streams: a graph as instructions for the machine of `kernels_equation`. No code is generated."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..nn.folded import Array, Equation
from ..ops.equation.graph import Node, ordered
from .kernels_equation import NUMBER, OPERATIONS, REGISTER, STATE

ALIASES = {"clamp_min": "maximum", "clamp_max": "minimum", "detach": "copy"}


class Code(NamedTuple):
    """An equation as the machine runs it."""

    instructions: list[int]
    registers: int


def encode(equation: Equation, add: Callable[[Array], int]) -> Code:
    """The instructions of an equation; `add` keeps numbers [N] and returns their index."""
    program, count = equation.program, len(equation.gain)

    def number(value: Array | float) -> tuple[int, int]:
        return NUMBER, add(np.broadcast_to(value, count))

    places: dict[str, tuple[int, int]] = {"current": (REGISTER, 0)}
    places |= {f"state.{name}": (STATE, k) for k, name in enumerate(program.states)}
    used = ordered([program.spikes, *program.following.values()])
    values = dict(zip(program.coefficients, equation.coefficients, strict=True))
    operands: dict[int, tuple[int, int]] = {}
    instructions: list[int] = []
    registers = len(program.states) + 2

    def emit(op: str, target: int, arguments: list[tuple[int, int]]) -> None:
        padded = [*arguments, *[(REGISTER, 0)] * (3 - len(arguments))]
        instructions.extend([OPERATIONS.index(op), target, *(each for operand in padded for each in operand)])

    def operand(node: Node) -> tuple[int, int]:
        nonlocal registers
        if isinstance(node.value, str):
            known = places.get(node.value)
            return number(values[node.value.removeprefix("c.")]) if known is None else known
        if node.op == "constant":
            assert node.value is not None
            return number(node.value)
        arguments = [operands[argument.index] for argument in node.args]
        if node.op == "pow":
            assert node.value is not None
            arguments.append(number(node.value))
        emit(ALIASES.get(node.op, node.op), registers, arguments)
        registers += 1
        return REGISTER, registers - 1

    for node in used:
        operands[node.index] = operand(node)
    for k, name in enumerate(program.states):
        emit("copy", 1 + k, [operands[program.following[name].index]])
    emit("copy", 1 + len(program.states), [operands[program.spikes.index]])
    return Code(instructions, registers)
