"""From `dynamics` to its graph: the function is called once, with symbols in place of tensors."""

from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any, Never

import torch

from .graph import Graph, Node, Program, program


class Untraceable(Exception):
    """The dynamics use something that cannot be compiled; the text is a clause that says what."""


class BranchError(ValueError):
    """The dynamics branch on a value or take it out as a Python number: they have no one graph."""


def trace(function: Callable[..., Any], states: tuple[str, ...], coefficients: tuple[str, ...], owner: str) -> Program:
    """Trace the equation of one step.

    Args:
        function: `dynamics(current, state, c, spike) -> (spikes, {name: next state})`.
        states: Names of the states.
        coefficients: Names of the coefficients.
        owner: The neuron's name, for errors.

    Raises:
        Untraceable: It uses an operation that cannot be compiled. The loop may still run it.
        BranchError: It branches on a value.
    """
    graph = Graph()

    def symbols(prefix: str, names: tuple[str, ...]) -> Any:
        values = (Symbol(graph, graph.input(f"{prefix}.{name}")) for name in names)
        return namedtuple("Symbols", names)(*values)

    def spike(x: Any) -> Symbol:
        return Symbol(graph, graph.node("spike", _number(graph, x)))

    try:
        result = function(
            Symbol(graph, graph.input("current")), symbols("state", states), symbols("c", coefficients), spike
        )
    except BranchError as error:
        raise BranchError(f"{owner}: dynamics must not {error}") from None
    except Untraceable:
        raise
    except Exception as error:
        # Something that symbols cannot do, or an error in the equation, which the loop will raise.
        raise Untraceable(" ".join(str(error).split()) or type(error).__name__) from error
    match result:
        case (spikes, Mapping() as following) if set(following) == set(states):
            pass
        case _:
            raise Untraceable("they do not return (spikes, {state: value})")
    outputs = {name: _number(graph, following[name]) for name in states}
    traced = program(graph, states, coefficients, _number(graph, spikes), outputs)
    if not traced.arguments:
        raise Untraceable("they never call spike")
    return traced


class Symbol:
    """Stands for a tensor of one value per channel, and records what is done to it."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise Untraceable(f"they use .{name}")
        return lambda *args, **options: function(self, *args, **options)

    def __bool__(self) -> Never:
        raise BranchError("branch on a value (if, while, and, or, min, max); use torch.where")

    def item(self) -> Never:
        raise BranchError("turn a value into a Python number (float, int, item); use torch functions")

    __float__ = __int__ = __index__ = item

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), options: Any = None) -> Any:
        name = getattr(function, "__name__", str(function))
        known = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.strip("_"))
        if known is None:
            raise Untraceable(f"they use torch.{name.strip('_')}")
        return known(*args, **(options or {}))


def _graph_of(*values: Any) -> Graph:
    return next(value._graph for value in values if isinstance(value, Symbol))


def _number(graph: Graph, value: Any) -> Node:
    """The node of a symbol or number; a mask counts 1 and 0."""
    if isinstance(value, Symbol):
        node = value._node
        return graph.node("where", node, graph.constant(1), graph.constant(0)) if node.is_mask else node
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.requires_grad:
            raise Untraceable("they use a tensor that is no coefficient")
        value = value.item()
    if isinstance(value, bool | int | float):
        return graph.constant(float(value))
    raise Untraceable(f"they use a {type(value).__name__}")


def _mask(graph: Graph, value: Any) -> Node:
    if isinstance(value, Symbol):
        node = value._node
        return node if node.is_mask else graph.node("ne", node, graph.constant(0))
    if isinstance(value, bool):
        one = graph.constant(1)
        return graph.node("eq", one, graph.constant(float(value)))
    raise Untraceable(f"they use a {type(value).__name__} as a condition")


def _elementwise(op: str, count: int) -> Callable[..., Symbol]:
    def apply(*values: Any, **options: Any) -> Symbol:
        if len(values) != count or options:
            raise Untraceable(f"they use {op} with other arguments")
        graph = _graph_of(*values)
        return Symbol(graph, graph.node(op, *(_number(graph, value) for value in values)))

    return apply


def _logical(op: str, count: int) -> Callable[..., Symbol]:
    def apply(*values: Any) -> Symbol:
        graph = _graph_of(*values)
        if len(values) != count or any(isinstance(each, Symbol) and not each._node.is_mask for each in values):
            raise Untraceable(f"they use {op} of numbers")
        return Symbol(graph, graph.node(op, *(_mask(graph, value) for value in values)))

    return apply


def _swapped(function: Callable[..., Symbol]) -> Callable[..., Symbol]:
    return lambda a, b: function(b, a)


def _where(condition: Any, then: Any = None, otherwise: Any = None) -> Symbol:
    graph = _graph_of(condition, then, otherwise)
    return Symbol(graph, graph.node("where", _mask(graph, condition), _number(graph, then), _number(graph, otherwise)))


def _clamp(x: Any, min: Any = None, max: Any = None) -> Symbol:
    graph = _graph_of(x, min, max)
    node = _number(graph, x)
    if min is not None:
        node = graph.node("clamp_min", node, _number(graph, min))
    if max is not None:
        node = graph.node("clamp_max", node, _number(graph, max))
    return Symbol(graph, node)


def _relu(x: Any) -> Symbol:
    graph = _graph_of(x)
    node, zero = _number(graph, x), graph.constant(0)
    return Symbol(graph, graph.node("where", graph.node("gt", node, zero), node, zero))


def _pow(x: Any, exponent: Any) -> Symbol:
    graph = _graph_of(x, exponent)
    if isinstance(exponent, Symbol):
        raise Untraceable("they use a power whose exponent is not constant")
    base, power = _number(graph, x), _number(graph, exponent).value
    assert isinstance(power, float)
    if power == 0.5:
        return Symbol(graph, graph.node("sqrt", base))
    if power.is_integer() and 1 <= abs(power) <= 8:
        node = base
        for _ in range(int(abs(power)) - 1):
            node = graph.node("mul", node, base)
        return Symbol(graph, node if power > 0 else graph.node("div", graph.constant(1), node))
    return Symbol(graph, graph.node("pow", base, value=power))


def _detach(x: Symbol) -> Symbol:
    return Symbol(x._graph, x._graph.node("detach", _number(x._graph, x)))


def _as_number(x: Symbol, *_: Any, **__: Any) -> Symbol:
    return Symbol(x._graph, _number(x._graph, x))


def _filled(value: float) -> Callable[..., Symbol]:
    return lambda x, **_: Symbol(x._graph, x._graph.constant(value))


def _full_like(x: Symbol, value: Any, **_: Any) -> Symbol:
    return Symbol(x._graph, _number(x._graph, value))


def _scaled(op: str) -> Callable[..., Symbol]:
    """`torch.add` and `torch.sub`, whose second argument may have a factor."""

    def apply(a: Any, b: Any, *, alpha: Any = 1) -> Symbol:
        graph = _graph_of(a, b)
        right = graph.node("mul", _number(graph, b), _number(graph, alpha))
        return Symbol(graph, graph.node(op, _number(graph, a), right))

    return apply


_mul, _div = _elementwise("mul", 2), _elementwise("div", 2)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _scaled("add"), "sub": _scaled("sub"), "mul": _mul, "div": _div, "rsub": _swapped(_scaled("sub")),
    "subtract": _scaled("sub"), "multiply": _mul, "true_divide": _div, "truediv": _div, "divide": _div,
    "neg": _elementwise("neg", 1), "negative": _elementwise("neg", 1), "pos": _as_number,
    "rtruediv": _swapped(_div), "radd": _swapped(_scaled("add")), "rmul": _swapped(_mul), "rdiv": _swapped(_div),
    **{name: _elementwise(name, 1) for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "abs")},
    "absolute": _elementwise("abs", 1), "square": lambda x: _mul(x, x),
    "reciprocal": lambda x: _div(1.0, x), "rsqrt": lambda x: _div(1.0, _FUNCTIONS["sqrt"](x)),
    "minimum": _elementwise("minimum", 2), "maximum": _elementwise("maximum", 2),
    "clamp": _clamp, "clip": _clamp, "clamp_min": _clamp, "clamp_max": lambda x, max: _clamp(x, None, max),
    "relu": _relu, "pow": _pow, "where": _where, "detach": _detach,
    "gt": _elementwise("gt", 2), "ge": _elementwise("ge", 2), "lt": _elementwise("lt", 2),
    "le": _elementwise("le", 2), "eq": _elementwise("eq", 2), "ne": _elementwise("ne", 2),
    "greater": _elementwise("gt", 2), "greater_equal": _elementwise("ge", 2), "less": _elementwise("lt", 2),
    "less_equal": _elementwise("le", 2),
    "and": _logical("and", 2), "or": _logical("or", 2), "invert": _logical("not", 1), "rand": _logical("and", 2),
    "ror": _logical("or", 2),
    "logical_and": _logical("and", 2), "logical_or": _logical("or", 2), "logical_not": _logical("not", 1),
    "bitwise_and": _logical("and", 2), "bitwise_or": _logical("or", 2), "bitwise_not": _logical("not", 1),
    "float": _as_number, "to": _as_number, "type_as": _as_number, "clone": _as_number, "contiguous": _as_number,
    "zeros_like": _filled(0.0), "ones_like": _filled(1.0), "full_like": _full_like,
}  # fmt: skip


def _install() -> None:
    """The operators of Python, which are looked up on the class."""
    for name in (
        "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "pos", "abs", "pow", "gt", "ge",
        "lt", "le", "eq", "ne", "and", "or", "invert", "rand", "ror",
    ):  # fmt: skip
        setattr(Symbol, f"__{name}__", lambda *args, _function=_FUNCTIONS[name]: _function(*args))
    # Setting __eq__ afterwards keeps the hash, which nothing here relies on.


_install()
