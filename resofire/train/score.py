"""How good a network is on a split: correct answers counted one by one, and how much each layer fires."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from ..models.network import Network
from ..nn import fire_rates
from .stream import Batch

# Labels that say nothing; F.cross_entropy leaves them out, too.
IGNORED = -100


@dataclass
class Score:
    """Sums over what was seen. Counts are integers, so that an accuracy comes out to the last digit."""

    correct: int = 0
    count: int = 0
    loss: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        return self.correct / max(1, self.count)

    @property
    def mean_loss(self) -> float:
        return self.loss / max(1, self.count)

    def as_dict(self) -> dict[str, float]:
        return {"accuracy": self.accuracy, "correct": self.correct, "count": self.count, "loss": self.mean_loss}


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the losses, the correct answers and the labels that count, whatever comes before the classes."""
    flat, wanted = logits.flatten(0, -2), labels.flatten()
    loss = F.cross_entropy(flat, wanted, reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED)
    return loss, (flat.argmax(-1) == wanted).sum(), (wanted != IGNORED).sum()


@torch.no_grad()
def score(model: Network, batches: Iterable[Batch]) -> Score:
    """Of a network in evaluation."""
    model.eval()
    device = next(model.parameters()).device
    found = Score()
    with fire_rates(model) as rates:
        for batch in batches:
            bounds = None if batch.cu_seqlens is None else batch.cu_seqlens.to(device)
            logits = model(batch.x.to(device), cu_seqlens=bounds)
            loss, correct, count = cross_entropy(logits, batch.labels.to(device))
            found.loss += float(loss)
            found.correct += int(correct)
            found.count += int(count)
    found.rates = rates.as_dict()
    return found
