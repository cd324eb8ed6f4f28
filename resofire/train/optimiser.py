"""AdamW in three groups of parameters, the learning rate as a function of the step, and averaged weights."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ..nn import Neuron, SpatialNeuron
from .config import RunConfig

BETAS = (0.9, 0.999)
# The state of AdamW that has the shape of the parameter.
MOMENTS = ("exp_avg", "exp_avg_sq")


def parameter_groups(model: nn.Module, config: RunConfig) -> list[dict[str, Any]]:
    """Split the parameters of a model into groups by the modules they belong to.

    - weights: matrices, with weight decay.
    - plain: biases, norms and embeddings, without weight decay.
    - neurons: all parameters of a `nn.Neuron` or `nn.SpatialNeuron` itself except matrices, and those that a module
      names in its class attribute `neuron_parameters` (amplitudes); at `neuron_lr`, without weight decay.

    Returns:
        The groups that are not empty. `highest` is the highest learning rate of a group.
    """
    neuron, embeddings = set(), set()
    for module in model.modules():
        if isinstance(module, Neuron | SpatialNeuron):
            neuron |= {id(value) for value in module.parameters(recurse=False) if value.dim() < 2}
        named = (module._parameters.get(name) for name in getattr(module, "neuron_parameters", ()))
        neuron |= {id(value) for value in named if value is not None}
        if isinstance(module, nn.Embedding):
            embeddings.add(id(module.weight))
    members: dict[str, list[nn.Parameter]] = {"weights": [], "plain": [], "neurons": []}
    # In the order of the model: the state of an optimiser is saved by position.
    for parameter in model.parameters():
        plain = parameter.dim() < 2 or id(parameter) in embeddings
        members["neurons" if id(parameter) in neuron else "plain" if plain else "weights"].append(parameter)
    settings = {
        "weights": (config.lr, config.weight_decay),
        "plain": (config.lr, 0.0),
        "neurons": (config.neuron_lr, 0.0),
    }
    return [
        {"name": name, "params": parameters, "highest": settings[name][0], "weight_decay": settings[name][1]}
        for name, parameters in members.items()
        if parameters
    ]


def adamw(model: nn.Module, config: RunConfig) -> AdamW:
    """AdamW over the parameter groups of a model."""
    return AdamW(parameter_groups(model, config), lr=config.lr, betas=BETAS, fused=True)


def lr_factor(step: int, steps: int, config: RunConfig) -> float:
    """Factor of the learning rate in step 0 … steps - 1: a linear warm-up, then half a cosine."""
    rising = round(config.warmup * steps)
    if step < rising:
        return (step + 1) / rising
    share = (step - rising) / max(1, steps - rising)
    return config.final_lr + (1 - config.final_lr) * 0.5 * (1 + math.cos(math.pi * share))


def set_lr(optimizer: Optimizer, factor: float) -> None:
    """Set the learning rate of each group to this factor times its highest."""
    for group in optimizer.param_groups:
        # An optimiser of the user's own may have groups without `highest`.
        group["lr"] = group.setdefault("highest", group["lr"]) * factor


class Average:
    """An exponential moving average of the weights of a model.

    The decay rises from 2/11 after the first step, so that the initial weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update after step `step` (the first is 1)."""
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        averaged, current = self.model.state_dict(), model.state_dict()
        floating = [name for name, value in averaged.items() if value.is_floating_point()]
        targets: list[Tensor] = [averaged[name] for name in floating]
        if targets:
            torch._foreach_lerp_(targets, [current[name] for name in floating], share)
        for name in averaged.keys() - set(floating):
            averaged[name].copy_(current[name])
