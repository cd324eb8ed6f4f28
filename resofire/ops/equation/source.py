"""A graph as source: one line per node, and what the backward pass needs of the forward pass."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .adjoint import Adjoint
from .graph import Node, Program, ordered
from .lower import lowered

FUNCTIONS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "v.neg({})", "exp": "v.exp({})",
    "log": "v.log({})", "sqrt": "v.sqrt({})", "sin": "v.sin({})", "cos": "v.cos({})", "tanh": "v.tanh({})",
    "sigmoid": "1.0 / (1.0 + v.exp(v.neg({})))", "abs": "v.absolute({})", "minimum": "v.minimum({}, {})",
    "maximum": "v.maximum({}, {})", "clamp_min": "v.maximum({}, {})", "clamp_max": "v.minimum({}, {})",
    "where": "v.where({}, {}, {})", "gt": "v.gt({}, {})",
    "ge": "v.ge({}, {})", "lt": "v.lt({}, {})", "le": "v.le({}, {})", "eq": "v.eq({}, {})", "ne": "v.ne({}, {})",
    "and": "v.where({}, {}, 0.0)", "or": "v.where({}, 1.0, {})", "not": "v.where({}, 0.0, 1.0)",
}  # fmt: skip
# What takes so long that the backward pass reads its value from the forward walk instead of computing it once more.
COSTLY = frozenset({"div", "exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "pow"})


class Lines(NamedTuple):
    """A graph as source: one line per node, and the name of each node's value."""

    once: list[str]  # what depends on nothing but coefficients
    each_step: list[str]
    names: dict[int, str]
    fixed: set[int]  # the nodes of `once`, coefficients included


def statements(
    outputs: Iterable[Node], names: Mapping[str, str], noted: Mapping[int, str] = MappingProxyType({})
) -> Lines:
    """The source of some nodes.

    Args:
        outputs: The nodes to compute.
        names: The variable of every input.
        noted: The variables of nodes that have been computed before.
    """
    lines = Lines([], [], dict(noted), set())
    for node in ordered(outputs, set(noted)):
        if node.op == "input":
            assert isinstance(node.value, str)
            lines.names[node.index] = names[node.value]
            if node.value.startswith("c."):
                lines.fixed.add(node.index)
            continue
        arguments = [lines.names[argument.index] for argument in node.args]
        match node.op:
            case "constant":
                # A vector, for operations between constants that could not be folded need one.
                text = f"v.spread(zero, {_literal(node.value)})"
            case "pow":
                text = f"v.power({arguments[0]}, {_literal(node.value)})"
            case op:
                text = FUNCTIONS[op].format(*arguments)
        lines.names[node.index] = f"n{node.index}"
        if all(argument.index in lines.fixed for argument in node.args):
            lines.fixed.add(node.index)
            lines.once.append(f"n{node.index} = {text}")
        else:
            lines.each_step.append(f"n{node.index} = {text}")
    return lines


def _literal(value: object) -> str:
    assert isinstance(value, float)
    return repr(value) if np.isfinite(value) else f"np.float64('{value}')"


class ChunkBackward(NamedTuple):
    """The backward pass through a chunk: recompute the steps, noting what their reverse reads, then reverse."""

    recomputed: Lines
    reverse: Lines
    following: list[str]  # the next states
    notes: dict[str, str]  # name in the reverse steps -> value of the forward steps to note
    slopes: dict[str, str]  # likewise for the arguments of `spike`, whose slopes are noted
    grad_current: str
    grad_states: list[str]
    sums: list[tuple[int, str, str]]  # terms of the gradients of coefficients: (coefficient, sign, value)

    @property
    def summed(self) -> list[int]:
        """The indices of the coefficients in `sums`."""
        return list(dict.fromkeys(k for k, *_ in self.sums))

    def totals(self) -> dict[int, str]:
        """The gradient of each coefficient in `sums`, as one expression."""
        parts = {k: [f"{sign} {value}" for j, sign, value in self.sums if j == k] for k in self.summed}
        return {k: f"zero {' '.join(terms)}" for k, terms in parts.items()}

    @property
    def place(self) -> dict[str, int]:
        """The places of the notes of one vector."""
        return {name: k for k, name in enumerate((*self.notes, *self.slopes))}

    def noting(self, vector: bool) -> list[str]:
        """The lines that write notes; without a vector form of the slope, its arguments (see `slopes_one_by_one`)."""
        values = dict(self.notes)
        values |= {name: f"slope({value}, *numbers)" if vector else value for name, value in self.slopes.items()}
        return [f"store(notes, note + {self.place[name]} * WIDTH, {value})" for name, value in values.items()]

    def slopes_one_by_one(self, indent: str, vectors: str) -> list[str]:
        """The lines that turn the arguments of the first `vectors` notes into slopes."""
        if not self.slopes:
            return []
        return [
            f"{indent}for t in range({vectors}):",
            f"{indent}    first_slope = base + (t * {len(self.place)} + {len(self.notes)}) * WIDTH",
            f"{indent}    for k in range(first_slope, first_slope + {len(self.slopes)} * WIDTH):",
            f"{indent}        notes[k] = slope(notes[k], *numbers)",
        ]


def chunk_backward(
    program: Program, adjoint: Adjoint, trained: Sequence[str], note_current: bool = False
) -> ChunkBackward:
    """The backward pass of a program through a chunk.

    Args:
        program: What the forward pass computes.
        adjoint: Its gradients.
        trained: The coefficients whose gradients are needed.
        note_current: Whether the current has to be noted like a state, as it is not in memory.
    """
    gradients = [adjoint.current, *(adjoint.states[name] for name in program.states)]
    gradients += [adjoint.coefficients[name] for name in trained]
    forward = [*program.arguments, *(program.following[name] for name in program.states)]
    nodes = lowered([*forward, *(node for node in gradients if node is not None)])
    forward_nodes, gradient_nodes = nodes[: len(forward)], nodes[len(forward) :]
    recomputed = statements(forward_nodes, inputs_of(program))
    arguments, following = (
        [recomputed.names[node.index] for node in part]
        for part in (forward_nodes[: len(program.arguments)], forward_nodes[len(program.arguments) :])
    )
    count = 1 + len(program.states)
    remaining = iter(gradient_nodes)
    results = [None if node is None else next(remaining) for node in gradients]
    terms = _terms(results[:count], dict(zip(trained, results[count:], strict=True)))
    gradient_nodes = [node for node in results[:count] if node is not None] + [node for *_, node in terms]
    computed = {node.index for node in ordered(forward_nodes)} - recomputed.fixed
    shared = [node.index for node in ordered(gradient_nodes) if node.op in COSTLY and node.index in computed]
    costly = {index: f"m{index}" for index in shared}
    reverse = statements(gradient_nodes, inputs_of(program), costly)
    inputs = {node.value for node in ordered(gradient_nodes, costly) if node.op == "input"}
    notes = {"x": "x"} if note_current and "current" in inputs else {}
    notes |= {f"s{k}": f"s{k}" for k, name in enumerate(program.states) if f"state.{name}" in inputs}
    notes |= {name: recomputed.names[index] for index, name in costly.items()}
    slopes = {f"d{k}": name for k, name in enumerate(arguments) if f"slope.{k}" in inputs}
    current, *states = ("zero" if node is None else reverse.names[node.index] for node in results[:count])
    return ChunkBackward(
        recomputed=recomputed,
        reverse=reverse,
        following=following,
        notes=notes,
        slopes=slopes,
        grad_current=current,
        grad_states=states,
        sums=[(program.coefficients.index(name), sign, reverse.names[node.index]) for name, sign, node in terms],
    )


def _terms(others: list[Node | None], gradients: dict[str, Node | None]) -> list[tuple[str, str, Node]]:
    """The gradients of coefficients as terms (name, sign, node): adding each to a sum saves adding them up first."""
    outputs = [node for node in (*others, *gradients.values()) if node is not None]
    readers = Counter(node.index for node in outputs)
    for node in ordered(outputs):
        readers.update(argument.index for argument in node.args)
    terms: list[tuple[str, str, Node]] = []

    def split(name: str, sign: str, node: Node) -> None:
        # What others read as well has to be computed anyway.
        if readers[node.index] > 1 or node.op not in ("add", "sub", "neg"):
            terms.append((name, sign, node))
            return
        other = "+" if sign == "-" else "-"
        signs = {"add": (sign, sign), "sub": (sign, other), "neg": (other,)}[node.op]
        for each, argument in zip(signs, node.args, strict=True):
            split(name, each, argument)

    for name, gradient in gradients.items():
        if gradient is not None:
            split(name, "+", gradient)
    return terms


def inputs_of(program: Program) -> dict[str, str]:
    """The variable of every input."""
    return {
        "current": "x",
        "grad.spikes": "gs",
        **{f"state.{name}": f"s{k}" for k, name in enumerate(program.states)},
        **{f"grad.{name}": f"g{k}" for k, name in enumerate(program.states)},
        **{f"c.{name}": f"c{k}" for k, name in enumerate(program.coefficients)},
        **{f"slope.{k}": f"d{k}" for k in range(len(program.arguments))},
    }


def loads(program: Program, indent: str) -> list[str]:
    """The lines that load the coefficients of a vector of lanes."""
    return [f"{indent}c{k} = load(coefs, {k} * pitch + lane)" for k in range(len(program.coefficients))]


def assigned(indent: str, targets: list[str], values: list[str]) -> list[str]:
    """All at once, as a next state may be the last value of another one."""
    return [f"{indent}{', '.join(targets)} = {', '.join(values)}"] if targets else []


def joined(*lines: str) -> str:
    """A source of some lines."""
    return "\n".join(lines) + "\n"
