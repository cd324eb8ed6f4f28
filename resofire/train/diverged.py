"""When numbers stop being numbers: which layer was it?"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..models.network import Network
from .stream import Batch


class Diverged(RuntimeError):
    """A loss or gradient that is no finite number."""

    def __init__(self, step: int, culprit: str) -> None:
        super().__init__(step, culprit)
        self.step, self.culprit = step, culprit

    def __str__(self) -> str:
        return f"training diverged in step {self.step}: {self.culprit}"


def first_nonfinite_layer(model: Network, batch: Batch) -> str:
    """The first layer whose weights, output or gradient is not finite, in the order in which data meets them."""
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            return f"the weights {name} are not finite"
    if batch.x.is_floating_point() and not bool(batch.x.isfinite().all()):
        return "the input is not finite"
    first = _first_output(model, batch)
    if first is not None:
        return f"the output of layer {first} is not finite"
    for name, parameter in reversed([*model.named_parameters()]):
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            return f"the gradient of {name} is not finite"
    return "the norm of the gradient is not finite"


@torch.no_grad()
def _first_output(model: Network, batch: Batch) -> str | None:
    found: list[str] = []

    def looker(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, given: Any, out: Any) -> None:
            parts = out if isinstance(out, tuple) else (out,)
            if any(isinstance(part, Tensor) and not bool(part.isfinite().all()) for part in parts):
                found.append(name)

        return look

    # On leaves: a block is then composed of its parts, and the part can be told.
    leaves = [(name, module) for name, module in model.named_modules() if not [*module.children()]]
    hooks = [module.register_forward_hook(looker(name)) for name, module in leaves]
    # In evaluation nothing is exchanged between processes, of which perhaps only one is here.
    model.eval()
    try:
        logits = model(batch.x, cu_seqlens=batch.cu_seqlens)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return found[0]
    return None if bool(logits.isfinite().all()) else "head"
