"""Fire rates of the layers, measured on data; the operation count depends on them."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ..data import Batch
from ..nn import fire_rates as watch


def fire_rates(model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
    """Measure the fire rate of each layer.

    Args:
        model: A network; it runs in evaluation mode and is left as it was.
        batches: As `resofire.data` yields them.

    Returns:
        Spikes per neuron and time step by layer name, over all time steps: a long sequence counts more.

    Raises:
        ValueError: The batches are empty or hold NaN or infinity.
    """
    return rates_and_length(model, batches)[0]


@torch.no_grad()
def rates_and_length(
    model: nn.Module, batches: Iterable[Batch], each: Callable[[Batch, Tensor], None] | None = None
) -> tuple[dict[str, float], float]:
    """Return the fire rates and the mean number of time steps per inference, both documents of a pair together.

    `each` is called with every batch and its logits, so that one pass over the data serves other figures, too.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"fire_rates: model must be a module, got {type(model).__name__}")
    pairs = getattr(getattr(model, "config", None), "pairs", False)
    modes = [(module, module.training) for module in model.modules()]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    steps = inferences = 0
    model.eval()
    try:
        with watch(model) as rates:
            for number, batch in enumerate(batches):
                # A neuron that receives NaN is silent, which would pass for a low rate.
                if not torch.isfinite(batch.x).all():
                    raise ValueError(f"fire_rates: batches must hold finite numbers, got NaN or infinity in {number}")
                bounds = None if batch.cu_seqlens is None else batch.cu_seqlens.to(device)
                logits = model(batch.x.to(device), cu_seqlens=bounds)
                if each is not None:
                    each(batch, logits)
                batch_steps, batch_inferences = _sizes(batch, pairs)
                steps, inferences = steps + batch_steps, inferences + batch_inferences
    finally:
        for module, mode in modes:
            module.training = mode
    if steps == 0:
        raise ValueError(f"fire_rates: batches must hold at least one time step, got {inferences} sequences")
    return rates.as_dict(), steps / inferences


def _sizes(batch: Batch, pairs: bool) -> tuple[int, int]:
    """Time steps and inferences in a batch."""
    if batch.cu_seqlens is not None:
        sequences = batch.cu_seqlens.shape[0] - 1
        return batch.x.shape[1], sequences // 2 if pairs else sequences
    sequences = batch.x.shape[0]
    return sequences * (2 * batch.x.shape[2] if pairs else batch.x.shape[1]), sequences
