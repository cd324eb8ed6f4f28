"""The neurons of a network by frequency and memory, before and after training, with how much each of them fires."""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data import Batch
from ..models import build
from ..nn import Neuron, Recurrent
from ..train import RunConfig
from ..train.evaluation import predictions
from .drawing import short
from .recording import recorded, title

NEURONS = 4000


def plane(model: nn.Module, initial: nn.Module | None, rates: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Every layer of temporal neurons in the plane of frequency θΔ (radians per step) and memory τ/Δ (steps).

    `initial` is the network before training, if known; `rates` has the fire rates [N] by layer, see `neuron_rates`.
    """
    before = {} if initial is None else _oscillators(initial)
    after = _oscillators(model)
    share = max(1, -(-sum(len(memory) for _, memory in after.values()) // NEURONS))
    layers = []
    for name, (frequency, memory) in after.items():
        kept = np.arange(0, len(memory), share)
        fired = rates.get(name)
        layers.append({
            "title": title(name), "neurons": len(memory), "kept": kept.tolist(),
            "after": {"frequency": short(frequency[kept]), "memory": short(memory[kept])},
            "before": None if name not in before else {
                "frequency": short(before[name][0][kept]), "memory": short(before[name][1][kept]),
            },
            # Several resonators of a neuron have its fire rate in common.
            "rate": None if fired is None else short(np.resize(fired, len(memory))[kept]),
        })  # fmt: skip
    return layers


def initial_network(config: RunConfig) -> nn.Module:
    """The network of a run as it was before the first step, without the statistics of its inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed % 2**64)
        return build(config.model)


def neuron_rates(model: nn.Module, batches: Iterable[Batch]) -> dict[str, np.ndarray]:
    """The fire rate of every neuron by layer, [N]."""
    fired: dict[str, Any] = {}
    steps: dict[str, int] = {}
    with recorded(model) as layers:
        for _ in predictions(model, batches):
            for name, layer in layers.items():
                flat = layer.spikes.flatten(0, -2)
                fired[name] = fired.get(name, 0) + flat.sum(0).cpu().numpy()
                steps[name] = steps.get(name, 0) + len(flat)
    return {name: counts / max(1, steps[name]) for name, counts in fired.items()}


def _oscillators(model: nn.Module) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Frequency and memory of every neuron by layer; layers that are no recurrence are left out."""
    oscillators = {}
    inside = {module.neuron for module in model.modules() if isinstance(module, Recurrent)}
    for name, module in model.named_modules():
        if isinstance(module, Neuron) and module not in inside:
            pair = oscillator(module.neuron if isinstance(module, Recurrent) else module)
            if pair is not None:
                oscillators[name] = pair
    return oscillators


@torch.no_grad()
def oscillator(neuron: Neuron) -> tuple[np.ndarray, np.ndarray] | None:
    """θΔ and τ/Δ of a neuron's channels, [N] each; of several resonators one after the other, as their parameters.

    Of a neuron with other parameters, angle and decay of the slowest mode of its equation, linearised at rest; None if
    it has no equation of one step.
    """
    delta, theta, tau = (_quantity(neuron, name) for name in ("delta", "theta", "tau"))
    if delta is not None and theta is not None and tau is not None:
        step = delta.repeat(len(theta) // len(delta))
        return (step * theta).cpu().numpy(), (tau / step).cpu().numpy()
    if not neuron.states or type(neuron).dynamics is Neuron.dynamics:
        return None
    slowest = _slowest(copy.deepcopy(neuron).double().cpu())
    with np.errstate(divide="ignore"):
        return np.abs(np.angle(slowest)), -1 / np.log(np.abs(slowest))


def _quantity(neuron: Neuron, name: str) -> Tensor | None:
    """A quantity that a neuron keeps as a buffer or, if trained, as its logarithm."""
    values = dict(neuron.named_parameters(recurse=False)) | dict(neuron.named_buffers(recurse=False))
    return values[f"log_{name}"].double().exp() if f"log_{name}" in values else values.get(name)


def _slowest(neuron: Neuron) -> np.ndarray:
    """The eigenvalue of the greatest size of the step from state to state without input, [N]."""
    count, small = len(neuron.states), 1e-6
    # Row j has state j moved a little away from rest, far below any threshold; the last row is at rest.
    moved = torch.eye(count + 1, dtype=torch.float64)[:, :count] * small
    state = neuron.state_type(*(column[:, None].repeat(1, neuron.features) for column in moved.unbind(1)))
    _, after = neuron.step(torch.zeros(count + 1, neuron.features, dtype=torch.float64), state)
    following = torch.stack(list(after), -1)  # [row, N, state]
    jacobian = ((following[:count] - following[count]) / small).permute(1, 2, 0).numpy()
    values = np.linalg.eigvals(jacobian)
    return values[np.arange(len(values)), np.abs(values).argmax(1)]
