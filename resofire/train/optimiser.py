"""AdamW in three groups of parameters, and the learning rate as a function of the step."""

import math

from torch import nn
from torch.optim import AdamW

from .config import RunConfig

BETAS = (0.9, 0.999)
# How the parameters of neurons end; see nn.PRF, nn.LIF, nn.SpatialNeuron and nn.SDTCM.
NEURON = ("log_delta", "log_theta", "log_tau", "log_tau_above_1", "log_amplitude")


def groups(model: nn.Module, config: RunConfig) -> list[dict[str, object]]:
    """Weights with decay; biases, norms and embeddings without; neurons without and at their own rate."""
    weights, plain, neurons = [], [], []
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        if name.rsplit(".", 1)[-1] in NEURON:
            neurons.append(parameter)
        elif parameter.dim() < 2 or id(parameter) in embeddings:
            plain.append(parameter)
        else:
            weights.append(parameter)
    made = [
        {"name": "weights", "params": weights, "highest": config.lr, "weight_decay": config.weight_decay},
        {"name": "plain", "params": plain, "highest": config.lr, "weight_decay": 0.0},
        {"name": "neurons", "params": neurons, "highest": config.neuron_lr, "weight_decay": 0.0},
    ]
    return [group for group in made if group["params"]]


def optimiser(model: nn.Module, config: RunConfig) -> AdamW:
    return AdamW(groups(model, config), lr=config.lr, betas=BETAS, fused=True)


def rate(step: int, steps: int, config: RunConfig) -> float:
    """What the highest learning rate is multiplied by in step 0 … steps - 1: a straight rise, then half a cosine."""
    rising = round(config.warmup * steps)
    if step < rising:
        return (step + 1) / rising
    share = (step - rising) / max(1, steps - rising)
    return config.final_lr + (1 - config.final_lr) * 0.5 * (1 + math.cos(math.pi * share))


def set_rate(optimizer: AdamW, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["highest"] * factor
