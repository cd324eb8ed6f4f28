"""A graph run node by node in torch, without compiling it: what compiled code is compared with in tests."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from .graph import Node, ordered

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "neg": torch.neg, "exp": torch.exp,
    "log": torch.log, "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "abs": torch.abs, "minimum": torch.minimum, "maximum": torch.maximum,
    "clamp_min": torch.maximum, "clamp_max": torch.minimum, "where": torch.where, "detach": torch.detach,
    "gt": torch.gt, "ge": torch.ge, "lt": torch.lt, "le": torch.le, "eq": torch.eq, "ne": torch.ne,
    "and": torch.logical_and, "or": torch.logical_or, "not": torch.logical_not,
    "spike": lambda x: (x >= 0).to(x.dtype),
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
    like = next(iter(inputs.values()))
    values: dict[int, Tensor] = {}
    for node in ordered(outputs):
        arguments = [values[argument.index] for argument in node.args]
        match node.op, node.value:
            case "input", str(name):
                value = inputs[name]
            case "constant", float(number):
                value = torch.full_like(like, number)
            case "pow", float(exponent):
                value = arguments[0] ** exponent
            case _:
                value = _FUNCTIONS[node.op](*arguments)
        values[node.index] = value
    return [values[node.index] for node in outputs]
