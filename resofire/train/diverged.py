"""Divergence: find the first number that is not finite, and stop the run with its name."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..data import Batch
from .evaluation import call


class Diverged(RuntimeError):
    """A loss, gradient or weight that is not finite.

    Args:
        step: The step in which it appeared.
        culprit: What was not finite, as a clause.
    """

    def __init__(self, step: int, culprit: str) -> None:
        super().__init__(step, culprit)
        self.step, self.culprit = step, culprit

    def __str__(self) -> str:
        return f"training diverged in step {self.step}: {self.culprit}"


def first_nonfinite_layer(model: nn.Module, batch: Batch) -> str:
    """The first layer whose weights, output or gradient is not finite, in the order of the forward pass."""
    for name, parameter in model.named_parameters():
        if not finite(parameter):
            return f"the weights {name} are not finite"
    if not finite(batch.x):
        return "the input is not finite"
    part = _first_output(model, batch)
    if part is not None:
        return f"the output of {part} is not finite"
    for name, parameter in reversed([*model.named_parameters()]):
        if parameter.grad is not None and not finite(parameter.grad):
            return f"the gradient of {name} is not finite"
    return "the norm of the gradient is not finite"


def require_finite(step: int, models: tuple[nn.Module, ...], optimizer: Optimizer) -> None:
    """Refuse to save weights or optimiser state that the next step would fail on.

    Raises:
        Diverged: One of them is not finite.
    """
    for name, value in (item for model in models for item in model.state_dict().items()):
        if not finite(value):
            raise Diverged(step, f"the weights {name} are not finite")
    for name, parameter in models[0].named_parameters():
        if not all(finite(value) for value in optimizer.state.get(parameter, {}).values()):
            raise Diverged(step, f"the optimiser's state of {name} is not finite")


def finite(value: Any) -> bool:
    """Whether all numbers of a tensor are finite; anything else is."""
    return not isinstance(value, Tensor) or bool(value.isfinite().all())


@torch.no_grad()
def _first_output(model: nn.Module, batch: Batch) -> str | None:
    layers: list[str] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if not all(finite(part) for part in (output if isinstance(output, tuple) else (output,))):
                layers.append(f"layer {name}")

        return look

    # Hooks on its leaves make a fused block run part by part, so that the part can be named.
    leaves = [(name, module) for name, module in model.named_modules() if not [*module.children()]]
    hooks = [module.register_forward_hook(hook(name)) for name, module in leaves]
    # In evaluation mode no process waits for the others, which may not be here.
    model.eval()
    try:
        logits = call(model, batch)
    finally:
        for each in hooks:
            each.remove()
    return layers[0] if layers else None if finite(logits) else "the model"
