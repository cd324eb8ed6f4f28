"""A graph made ready for emission: what a spike multiplies is chosen, not computed.

A spike is 0 or 1, so `x - V * spike` is one of x - V and x. Written as a choice, its branches do not wait for the
comparison, which halves the time from one step to the next. This follows differentiation, which has to see the spikes.
"""

from collections.abc import Iterable

from .graph import Graph, Node, rebuilt


def lowered(outputs: Iterable[Node]) -> list[Node]:
    """The same outputs in a new graph without `spike` and `detach`."""
    graph = Graph()

    def make(node: Node, arguments: tuple[Node, ...]) -> Node | None:
        match node.op:
            case "detach":
                return arguments[0]
            case "spike":
                return _spike(graph, arguments[0])
            case "add" | "sub" | "mul":
                return _binary(graph, node.op, *arguments)
        return None

    return rebuilt(outputs, graph, make)


def _spike(graph: Graph, x: Node) -> Node:
    # u - V ≥ 0 and u ≥ V are the same, and the second is known earlier.
    left, right = x.args if x.op == "sub" else (x, graph.constant(0))
    return graph.node("where", graph.node("ge", left, right), graph.constant(1), graph.constant(0))


def _binary(graph: Graph, op: str, x: Node, y: Node) -> Node:
    """x op y; inside the branches of a choice where at least one of them costs nothing."""
    masks = {each.args[0].index: each.args[0] for each in (x, y) if each.op == "where"}
    if len(masks) == 1:
        (mask,) = masks.values()
        branches = [[each.args[k] if each.op == "where" else each for each in (x, y)] for k in (1, 2)]
        free = [_free(graph, op, *branch) for branch in branches]
        if any(value is not None for value in free):
            parts = (
                graph.node(op, *branch) if value is None else value
                for value, branch in zip(free, branches, strict=True)
            )
            return graph.node("where", mask, *parts)
    return graph.node(op, x, y)


def _free(graph: Graph, op: str, x: Node, y: Node) -> Node | None:
    """x op y where that is one of them or a constant, else None."""
    constants = [each.value for each in (x, y) if each.op == "constant"]
    if op == "mul" and 0.0 in constants:
        return graph.constant(0)
    if not constants:
        return None
    result = graph.node(op, x, y)
    return result if result in (x, y) or result.op == "constant" else None
