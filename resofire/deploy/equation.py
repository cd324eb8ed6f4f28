"""Neurons of any equation in a folded network: the definition in NumPy, and how far each step is from a tie."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..nn.folded import Array, Equation, Neurons
from ..ops.equation.graph import Node, Program, ordered
from ..ops.equation.interpret import evaluate_arrays

COMPARISONS = ("gt", "ge", "lt", "le")


def fire(neurons: Neurons, z: Array) -> Array:
    """The spikes of one group, [T, N], bool."""
    return _run(neurons, z, ())[0]


def distances(neurons: Neurons, z: Array) -> Array:
    """The distance of each step from a tie, relative to the compared values, [T, N].

    If an equation compares more than once, a tie may show in a later spike: then it is the least distance so far.
    """
    program = _equation(neurons).program
    decisions = list(_decisions(program))
    watched = [each for decision in decisions for node in decision for each in (node, *_terms(node))]
    values = dict(zip((node.index for node in watched), _run(neurons, z, watched)[1], strict=True))
    least = np.full(z.shape, np.inf)
    for decision in decisions:
        above = values[decision[0].index].astype(np.float64)
        if len(decision) == 2:
            above = above - values[decision[1].index]
        scale = sum(np.abs(values[term.index]).max(0) for node in decision for term in _terms(node))
        least = np.minimum(least, np.abs(above) / (scale + 1e-300))
    return np.minimum.accumulate(least, 0) if len(decisions) > 1 else least


def _run(neurons: Neurons, z: Array, watched: Sequence[Node]) -> tuple[Array, list[Array]]:
    """Spikes [T, N], and the values [T, N] of some nodes."""
    equation = _equation(neurons)
    program = equation.program
    nodes = ordered([program.spikes, *program.following.values(), *watched])
    constants = {f"c.{name}": value for name, value in zip(program.coefficients, equation.coefficients, strict=True)}
    state = {f"state.{name}": np.zeros(z.shape[1], z.dtype) for name in program.states}
    fired, kept = np.zeros(z.shape, bool), [np.zeros_like(z) for _ in watched]
    for t, current in enumerate(equation.gain * (neurons.sign * z) + neurons.current):
        values = evaluate_arrays(nodes, {"current": current, **state, **constants})
        fired[t] = values[program.spikes.index] != 0
        for node, rows in zip(watched, kept, strict=True):
            rows[t] = values[node.index]
        state = {f"state.{name}": values[program.following[name].index] for name in program.states}
    return fired, kept


def _equation(neurons: Neurons) -> Equation:
    assert neurons.equation is not None
    return neurons.equation


def _decisions(program: Program) -> Iterator[tuple[Node, ...]]:
    """The operands of each comparison: (x,) with 0, or (a, b) with each other."""
    yield from ((argument,) for argument in program.arguments)
    for node in ordered([program.spikes, *program.following.values()]):
        if node.op in COMPARISONS:
            yield node.args


def _terms(node: Node) -> Iterator[Node]:
    """The terms of a sum: its rounding is relative to them."""
    if node.op in ("add", "sub", "neg", "detach"):
        for argument in node.args:
            yield from _terms(argument)
    else:
        yield node
