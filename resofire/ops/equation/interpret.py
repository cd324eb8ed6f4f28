"""A graph run node by node, without compiling it: in torch, what compiled code is compared with in tests; in NumPy, the
definition that exported networks are compared with."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .graph import Node, ordered

Functions = Mapping[str, Callable[..., Any]]
TORCH: Functions = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "neg": torch.neg, "exp": torch.exp,
    "log": torch.log, "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "abs": torch.abs, "minimum": torch.minimum, "maximum": torch.maximum,
    "clamp_min": torch.maximum, "clamp_max": torch.minimum, "where": torch.where, "detach": torch.detach,
    "gt": torch.gt, "ge": torch.ge, "lt": torch.lt, "le": torch.le, "eq": torch.eq, "ne": torch.ne,
    "and": torch.logical_and, "or": torch.logical_or, "not": torch.logical_not,
    "spike": lambda x: (x >= 0).to(x.dtype), "constant": torch.full_like,
}  # fmt: skip
NUMPY: Functions = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "exp": np.exp,
    "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "abs": np.abs, "minimum": np.minimum, "maximum": np.maximum,
    "clamp_min": np.maximum, "clamp_max": np.minimum, "where": np.where, "detach": lambda x: x,
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "spike": lambda x: (x >= 0).astype(x.dtype), "constant": np.full_like,
}  # fmt: skip


def evaluate(outputs: Iterable[Node], inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """The values of some nodes.

    Args:
        outputs: The nodes.
        inputs: A tensor for every input, all of one shape and dtype.

    Returns:
        A tensor for each of them.
    """
    outputs = list(outputs)
    values = _values(ordered(outputs), inputs, TORCH)
    return [values[node.index] for node in outputs]


def evaluate_arrays(nodes: Iterable[Node], inputs: Mapping[str, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    """As `evaluate`, in NumPy: the values of nodes that are in the order of evaluation, by their index."""
    # A division by zero, say, is what it is on the device too.
    with np.errstate(all="ignore"):
        return _values(nodes, inputs, NUMPY)


def _values(nodes: Iterable[Node], inputs: Mapping[str, Any], functions: Functions) -> dict[int, Any]:
    like = next(iter(inputs.values()))
    values: dict[int, Any] = {}
    for node in nodes:
        arguments = [values[argument.index] for argument in node.args]
        match node.op, node.value:
            case "input", str(name):
                value = inputs[name]
            case "constant", float(number):
                value = functions["constant"](like, number)
            case "pow", float(exponent):
                value = arguments[0] ** exponent
            case _:
                value = functions[node.op](*arguments)
        values[node.index] = value
    return values
