"""The adjoint of one step, as a graph: gradients of what goes in from those of what comes out.

`spike` goes through its surrogate's slope, an input of the adjoint; `detach` and masks let nothing through. At ties the
rules are torch's: half to each for minimum and maximum, everything for clamp.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .graph import Graph, Node, Program, ordered

Rule = Callable[[Graph, Node, Node], Iterator[Node | None]]


class Adjoint(NamedTuple):
    """The gradients of a step by input; None where nothing depends on one."""

    current: Node | None
    states: dict[str, Node | None]
    coefficients: dict[str, Node | None]

    def nodes(self) -> list[Node]:
        """Those that are not None."""
        return [node for node in (self.current, *self.states.values(), *self.coefficients.values()) if node is not None]


def adjoint(program: Program) -> Adjoint:
    """Differentiate a program; the gradients of its outputs are the inputs "grad.spikes" and "grad.<state>"."""
    graph = program.graph
    outputs = [program.spikes, *(program.following[name] for name in program.states)]
    seeds = ["grad.spikes", *(f"grad.{name}" for name in program.states)]
    gradients: dict[int, Node] = {}

    def add(node: Node, gradient: Node | None) -> None:
        if gradient is not None:
            before = gradients.get(node.index)
            gradients[node.index] = gradient if before is None else graph.node("add", before, gradient)

    for node, seed in zip(outputs, seeds, strict=True):
        add(node, graph.input(seed))
    slopes = {argument.index: graph.input(f"slope.{i}") for i, argument in enumerate(program.arguments)}
    for node in reversed(ordered(outputs)):
        gradient = gradients.get(node.index)
        if gradient is None or node.op in ("constant", "input", "detach") or node.is_mask:
            continue
        if node.op == "spike":
            add(node.args[0], graph.node("mul", gradient, slopes[node.args[0].index]))
            continue
        for argument, part in zip(node.args, RULES[node.op](graph, node, gradient), strict=True):
            if argument.op != "constant":
                add(argument, part)

    def of(name: str) -> Node | None:
        return gradients.get(graph.input(name).index)

    return Adjoint(
        of("current"),
        {name: of(f"state.{name}") for name in program.states},
        {name: of(f"c.{name}") for name in program.coefficients},
    )


def _add(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield from (g, g)


def _sub(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield from (g, graph.node("neg", g))


def _mul(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    a, b = node.args
    yield graph.node("mul", g, b)
    yield graph.node("mul", g, a)


def _div(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    b = node.args[1]
    yield graph.node("div", g, b)
    yield graph.node("neg", graph.node("mul", g, graph.node("div", node, b)))


def _neg(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield graph.node("neg", g)


def _exp(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield graph.node("mul", g, node)


def _log(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield graph.node("div", g, node.args[0])


def _sqrt(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield graph.node("div", g, graph.node("mul", graph.constant(2), node))


def _sin(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield graph.node("mul", g, graph.node("cos", node.args[0]))


def _cos(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield graph.node("neg", graph.node("mul", g, graph.node("sin", node.args[0])))


def _tanh(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    yield graph.node("mul", g, graph.node("sub", graph.constant(1), graph.node("mul", node, node)))


def _sigmoid(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    slope = graph.node("mul", graph.node("sub", graph.constant(1), node), node)
    yield graph.node("mul", g, slope)


def _pow(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    exponent = node.value
    assert isinstance(exponent, float)
    lower = graph.node("pow", node.args[0], value=exponent - 1)
    yield graph.node("mul", g, graph.node("mul", graph.constant(exponent), lower))


def _abs(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    x, zero = node.args[0], graph.constant(0)
    below = graph.node("where", graph.node("lt", x, zero), graph.node("neg", g), zero)
    yield graph.node("where", graph.node("gt", x, zero), g, below)


def _extreme(first: str, second: str) -> Rule:
    """minimum and maximum: the gradient goes to the chosen one, half to each if they are equal."""

    def rule(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
        a, b = node.args
        half = graph.node("mul", g, graph.constant(0.5))
        equal = graph.node("where", graph.node("eq", a, b), half, graph.constant(0))
        yield graph.node("where", graph.node(first, a, b), g, equal)
        yield graph.node("where", graph.node(second, a, b), g, equal)

    return rule


def _clamp(inside: str, outside: str) -> Rule:
    def rule(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
        x, bound = node.args
        zero = graph.constant(0)
        yield graph.node("where", graph.node(inside, x, bound), g, zero)
        yield graph.node("where", graph.node(outside, x, bound), g, zero)

    return rule


def _where(graph: Graph, node: Node, g: Node) -> Iterator[Node | None]:
    condition, zero = node.args[0], graph.constant(0)
    yield None
    yield graph.node("where", condition, g, zero)
    yield graph.node("where", condition, zero, g)


RULES: dict[str, Rule] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "exp": _exp, "log": _log, "sqrt": _sqrt,
    "sin": _sin, "cos": _cos, "tanh": _tanh, "sigmoid": _sigmoid, "abs": _abs, "pow": _pow, "where": _where,
    "minimum": _extreme("lt", "gt"), "maximum": _extreme("gt", "lt"), "clamp_min": _clamp("ge", "lt"),
    "clamp_max": _clamp("le", "gt"),
}  # fmt: skip
