"""Expression graphs: what one step of a neuron computes, as nodes that are never built twice.

    number     constant, input, add, sub, mul, div, neg, exp, log, sqrt, sin, cos, tanh, sigmoid, abs, minimum, maximum,
               clamp_min, clamp_max, pow (to a constant power), where, spike, detach
    mask       gt, ge, lt, le, eq, ne, and, or, not

A node comes after the nodes it reads, so that the order of creation is an order of evaluation. Inputs are named
"current", "state.u", "c.beta"; those of an adjoint also "grad.spikes", "grad.u" and "slope.0".
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MASKS = frozenset({"gt", "ge", "lt", "le", "eq", "ne", "and", "or", "not"})
# What can be computed before the graph runs, where all arguments are constants.
_FOLD: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a,
    "exp": math.exp, "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "abs": abs, "minimum": min, "maximum": max,
    "sqrt": math.sqrt, "log": math.log, "div": lambda a, b: a / b,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Node:
    """One operation.

    Attributes:
        index: The place in the order of evaluation.
        op: Its name.
        args: The nodes it reads.
        value: A constant's number, an input's name, or a power's exponent.
    """

    index: int
    op: str
    args: tuple["Node", ...] = ()
    value: float | str | None = None

    @property
    def is_mask(self) -> bool:
        return self.op in MASKS


class Graph:
    """A set of nodes. Equal expressions are one node, and constants are folded."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Any, ...], Node] = {}

    def constant(self, value: float) -> Node:
        # A repr tells -0.0 from 0.0, which compare as equal.
        return self._intern("constant", (), float(value), repr(float(value)))

    def input(self, name: str) -> Node:
        return self._intern("input", (), name)

    def node(self, op: str, *args: Node, value: float | None = None) -> Node:
        """The node of an operation, simplified where that changes no result."""
        if op in _FOLD and all(arg.op == "constant" for arg in args):
            try:
                return self.constant(_FOLD[op](*(arg.value for arg in args)))
            except (ValueError, OverflowError, ZeroDivisionError):
                # log(-1) is an error in Python and NaN when it runs.
                pass
        match op, args:
            case "add", (a, b) if _is(b, 0):
                return a
            case "add", (a, b) if _is(a, 0):
                return b
            case "sub", (a, b) if _is(b, 0):
                return a
            case (("mul" | "div"), (a, b)) if _is(b, 1):
                return a
            case "mul", (a, b) if _is(a, 1):
                return b
            case "mul", (a, b) if _is(b, -1):
                return self.node("neg", a)
            case "mul", (a, b) if _is(a, -1):
                return self.node("neg", b)
            case "neg", (a,) if a.op == "neg":
                return a.args[0]
            case "where", (_, a, b) if a is b:
                return a
            case "not", (a,) if a.op == "not":
                return a.args[0]
            case "detach", (a,) if a.op in ("detach", "constant"):
                return a
        return self._intern(op, args, value)

    def _intern(self, op: str, args: tuple[Node, ...], value: float | str | None, key: str | None = None) -> Node:
        place = (op, *(arg.index for arg in args), value if key is None else key)
        if place not in self._nodes:
            self._nodes[place] = Node(len(self._nodes), op, args, value)
        return self._nodes[place]


def _is(node: Node, value: float) -> bool:
    return node.op == "constant" and node.value == value


def rebuilt(outputs: Iterable[Node], graph: Graph, make: Callable[[Node, tuple[Node, ...]], Node | None]) -> list[Node]:
    """Copy outputs into another graph.

    Args:
        outputs: The nodes.
        graph: The other graph.
        make: Called with a node and its rebuilt arguments; returns the replacement, or None for the same operation.
    """
    outputs = list(outputs)
    copies: dict[int, Node] = {}
    for node in ordered(outputs):
        arguments = tuple(copies[argument.index] for argument in node.args)
        copy = make(node, arguments)
        if copy is None:
            match node.op, node.value:
                case "input", str(name):
                    copy = graph.input(name)
                case "constant", float(value):
                    copy = graph.constant(value)
                case op, (float() | None) as value:
                    copy = graph.node(op, *arguments, value=value)
        assert copy is not None
        copies[node.index] = copy
    return [copies[node.index] for node in outputs]


def ordered(nodes: Iterable[Node], known: Collection[int] = ()) -> list[Node]:
    """These nodes and all they read, in the order of evaluation, as far as their indices are not `known`."""
    reached: dict[int, Node] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node.index not in reached and node.index not in known:
            reached[node.index] = node
            pending += node.args
    return [reached[index] for index in sorted(reached)]


class Program(NamedTuple):
    """The dynamics of a neuron as a graph.

    Attributes:
        graph: Where its nodes live.
        states: Names of the states.
        coefficients: Names of the coefficients.
        spikes: The output.
        following: The next value of every state, by name.
        arguments: The arguments of `spike`, in the order of its calls.
        key: A hash of all that: equal programs have equal keys.
    """

    graph: Graph
    states: tuple[str, ...]
    coefficients: tuple[str, ...]
    spikes: Node
    following: Mapping[str, Node]
    arguments: tuple[Node, ...]
    key: str


def program(
    graph: Graph, states: tuple[str, ...], coefficients: tuple[str, ...], spikes: Node, following: Mapping[str, Node]
) -> Program:
    """Make a program from its outputs."""
    outputs = [spikes, *(following[name] for name in states)]
    nodes = ordered(outputs)
    arguments = tuple(node.args[0] for node in nodes if node.op == "spike")
    places = {node.index: place for place, node in enumerate(nodes)}
    text = [states, coefficients, [places[node.index] for node in outputs]]
    text += [(node.op, [places[arg.index] for arg in node.args], repr(node.value)) for node in nodes]
    key = hashlib.sha256(repr(text).encode()).hexdigest()[:24]
    return Program(graph, states, coefficients, spikes, following, arguments, key)


NORM = ("norm inverse", "norm offset", "norm gamma", "norm beta")


def with_norm(inner: Program) -> Program:
    """The program with a norm of its current, γ x̂ + β with x̂ = x inverse + offset: four more coefficients, `NORM`."""
    graph = Graph()
    inverse, offset, gamma, beta = (graph.input(f"c.{name}") for name in NORM)
    x_hat = graph.node("add", graph.node("mul", graph.input("current"), inverse), offset)
    current = graph.node("add", graph.node("mul", x_hat, gamma), beta)
    spikes, *following = rebuilt(
        [inner.spikes, *(inner.following[name] for name in inner.states)], graph,
        lambda node, _: current if node.value == "current" else None,
    )  # fmt: skip
    after = dict(zip(inner.states, following, strict=True))
    return program(graph, inner.states, (*inner.coefficients, *NORM), spikes, after)
