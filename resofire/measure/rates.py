"""How often each layer fires on data: the one number that a spiking network's work depends on."""

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from ..models import Classifier, Feedforward, Retrieval
from ..nn import fire_rates as watch

Model = Classifier | Feedforward | Retrieval


class Batch(Protocol):
    """What `resofire.data` gives, or any tuple with these names."""

    @property
    def x(self) -> Tensor: ...
    @property
    def cu_seqlens(self) -> Tensor | None: ...


def fire_rates(model: Model, batches: Iterable[Batch]) -> dict[str, float]:
    """Spikes per neuron and time step of each layer, over all time steps: a long sequence counts more."""
    return walk(model, batches)[0]


@torch.no_grad()
def walk(model: Model, batches: Iterable[Batch]) -> tuple[dict[str, float], float]:
    """The fire rates, and how many time steps an inference had on average: both documents of a pair together."""
    require_network("fire_rates", model)
    modes = [(module, module.training) for module in model.modules()]
    device = next(model.parameters()).device
    steps = inferences = 0
    model.eval()
    try:
        with watch(model) as rates:
            for number, batch in enumerate(batches):
                # A neuron that is fed NaN is silent, which would pass for a low rate.
                if not torch.isfinite(batch.x).all():
                    raise ValueError(f"fire_rates: batches must hold finite numbers, got NaN or infinity in {number}")
                bounds = None if batch.cu_seqlens is None else batch.cu_seqlens.to(device)
                model(batch.x.to(device), cu_seqlens=bounds)
                held, count = _sizes(batch, isinstance(model, Retrieval))
                steps, inferences = steps + held, inferences + count
    finally:
        for module, mode in modes:
            module.training = mode
    if steps == 0:
        raise ValueError(f"fire_rates: batches must hold at least one time step, got {inferences} sequences")
    return rates.as_dict(), steps / inferences


def require_network(owner: str, model: object) -> None:
    if not isinstance(model, Model):
        raise ValueError(f"{owner}: model must be a Classifier, Retrieval or Feedforward, got {type(model).__name__}")


def _sizes(batch: Batch, pairs: bool) -> tuple[int, int]:
    """Time steps and inferences in a batch."""
    if batch.cu_seqlens is not None:
        sequences = batch.cu_seqlens.shape[0] - 1
        return batch.x.shape[1], sequences // 2 if pairs else sequences
    sequences = batch.x.shape[0]
    return sequences * (2 * batch.x.shape[2] if pairs else batch.x.shape[1]), sequences
