"""Statistics of norms that fit what a network will see.

In training a norm's running statistics are those of augmented sequences and of weights that move on; what is validated
and shipped sees sequences as they are, through weights that are an average.
"""

from collections.abc import Iterable, Iterator

import torch

from ..models.network import Network
from ..nn import BatchNorm
from .stream import Batch, Split


@torch.no_grad()
def recalibrate(model: Network, batches: Iterable[Batch]) -> None:
    """Replaces the running statistics of a network's norms by their mean over batches; leaves it in evaluation."""
    norms = [each for each in model.eval().modules() if isinstance(each, BatchNorm)]
    device = next(model.parameters()).device
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            # In training a norm passes on what the batch's own statistics make of it, and counts these.
            norm.train()
        for number, batch in enumerate(batches, 1):
            for norm in norms:
                norm.momentum = 1 / number
            model(batch.x.to(device), cu_seqlens=None if batch.cu_seqlens is None else batch.cu_seqlens.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()


def spread(split: Split, size: int, count: int) -> Iterator[Batch]:
    """`count` batches, or as many as there are, evenly spread over a split in its stored order, not augmented."""
    whole = max(1, len(split) // size)
    count = min(count, whole)
    for number in range(count):
        yield next(iter(split.batches(size, start=number * whole // count)))
