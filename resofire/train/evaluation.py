"""Evaluation: accuracy as exact counts, fire rates, recalibrated norms, and the result of a run."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import Batch, Task
from ..data.task import IGNORED, SPLITS
from ..nn import BatchNorm, fire_rates

RESULT = "result.json"
RESULT_KEYS = {"accuracy", "correct", "loss", "fire_rates", "mean_fire_rate", "parameters"}

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Score:
    """Sums over a split.

    Attributes:
        correct: Correct answers.
        count: Labels.
        loss: Sum of the losses.
        rates: Fire rate of each layer by its name, where measured.
        classes: Correct answers and labels of each class, [classes, 2], where measured.
    """

    correct: int = 0
    count: int = 0
    loss: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)
    classes: Tensor | None = None

    @property
    def accuracy(self) -> float:
        """Share of correct answers."""
        return self.correct / max(1, self.count)

    @property
    def mean_loss(self) -> float:
        """Loss per label."""
        return self.loss / max(1, self.count)

    def as_dict(self) -> dict[str, float]:
        """Accuracy, correct, count and mean loss."""
        return {"accuracy": self.accuracy, "correct": self.correct, "count": self.count, "loss": self.mean_loss}


def call(model: nn.Module, batch: Batch) -> Tensor:
    """The logits of a batch; packed data are passed with their `cu_seqlens`."""
    return model(batch.x) if batch.cu_seqlens is None else model(batch.x, cu_seqlens=batch.cu_seqlens)


def losses(
    logits: Tensor, labels: Tensor, loss: Loss | None = None, smoothing: float = 0.0, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the losses and count the correct answers of a batch.

    Args:
        logits: [..., classes].
        labels: [...]; IGNORED ones are left out of all three results.
        loss: Mean loss of a batch, called as loss(logits, labels); None is cross entropy.
        smoothing: Label smoothing of cross entropy.
        weights: Weight of each class in cross entropy, [classes]; None: all 1.

    Returns:
        The sum of the losses, the number of correct answers and of labels, each [].
    """
    flat, target = logits.flatten(0, -2), labels.flatten()
    count = (target != IGNORED).sum()
    if loss is None:
        total = F.cross_entropy(
            flat, target, None if weights is None else weights.to(flat.dtype), reduction="sum",
            label_smoothing=smoothing, ignore_index=IGNORED,
        )  # fmt: skip
    else:
        # The mean over an empty batch is NaN in most losses.
        total = loss(logits, labels) * count if count else 0.0 * logits.sum()
    return total, (flat.argmax(-1) == target).sum(), count


def predictions(model: nn.Module, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and labels of each batch, on the device of the model."""
    device = next((value.device for value in model.parameters()), torch.device("cpu"))
    for batch in batches:
        bounds = None if batch.cu_seqlens is None else batch.cu_seqlens.to(device)
        moved = Batch(batch.x.to(device), batch.labels.to(device), bounds)
        yield call(model, moved), moved.labels


@torch.no_grad()
def score(model: nn.Module, batches: Iterable[Batch], *, loss: Loss | None = None) -> Score:
    """Evaluate a model on batches; leaves it in evaluation mode.

    Args:
        model: Called as model(x), or model(x, cu_seqlens=...) for packed batches.
        batches: Such as `split.batches(size)`.
        loss: Mean loss of a batch, called as loss(logits, labels); None is cross entropy.
    """
    total = Score()
    with fire_rates(model.eval()) as rates:
        for logits, labels in predictions(model, batches):
            summed, correct, count = losses(logits, labels, loss)
            total.loss += float(summed)
            total.correct += int(correct)
            total.count += int(count)
            counted = _by_class(logits, labels)
            total.classes = counted if total.classes is None else total.classes + counted
    total.rates = rates.as_dict()
    return total


def _by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Correct answers and labels of each class, [classes, 2]."""
    flat, target = logits.flatten(0, -2), labels.flatten()
    hit = target[flat.argmax(-1) == target]
    classes = logits.shape[-1]
    return torch.stack([each[each >= 0].bincount(minlength=classes) for each in (hit, target)], 1)


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Iterable[Batch]) -> None:
    """Replace the running statistics of a model's norms by their means over batches; leaves it in evaluation mode.

    During training the running statistics are those of augmented sequences and changing weights. The network that is
    validated and shipped sees unaugmented sequences, often through averaged weights.

    Args:
        model: The model.
        batches: The batches to take statistics from.
    """
    norms = [module for module in model.eval().modules() if isinstance(module, BatchNorm)]
    momenta = [norm.momentum for norm in norms]

    def cumulative() -> Iterator[Batch]:
        for number, batch in enumerate(batches, 1):
            for norm in norms:
                norm.momentum = 1 / number
            yield batch

    try:
        for norm in norms:
            # Only the norms: dropout stays off.
            norm.train()
        for _ in predictions(model, cumulative()):
            pass
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()


def evaluate(model: nn.Module, task: Task, batch: int) -> dict[str, Any]:
    """Evaluate a model on every split of a task, always on the same batches in the same order.

    The training split is evaluated on its first batches, as many as the test split has. Fire rates are those of the
    test split, or of the last split if there is no test split. The loss is cross entropy.

    Args:
        model: A trained network.
        task: The data set.
        batch: Sequences in a batch.

    Returns:
        task; accuracy, correct ([correct, count]) and loss by split; fire_rates by layer; mean_fire_rate; parameters.
        If the network has class names, also classes: [correct, count] of each class in the last split.
    """
    splits = {name: task.splits[name] for name in SPLITS if name in task.splits}
    limit = -(-len(splits["test"]) // batch) if "test" in splits else None
    scores = {
        name: score(model, islice(split.batches(batch), limit if name == "train" else None))
        for name, split in splits.items()
    }
    last = [*scores.values()][-1]
    rates, names = last.rates, getattr(getattr(model, "config", None), "class_names", None)
    by_class = {}
    if names is not None and last.classes is not None:
        by_class = {"classes": dict(zip(names, last.classes.tolist(), strict=True))}
    return {
        "task": task.name,
        "accuracy": {name: each.accuracy for name, each in scores.items()},
        "correct": {name: [each.correct, each.count] for name, each in scores.items()},
        "loss": {name: each.mean_loss for name, each in scores.items()},
        "fire_rates": rates,
        "mean_fire_rate": sum(rates.values()) / max(1, len(rates)),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **by_class,
    }


def recorded(run: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The content of a run's result.json; None if the file is missing or damaged."""
    try:
        result = json.loads((Path(run) / RESULT).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) and result.keys() >= RESULT_KEYS else None


def report(run: Path, result: dict[str, Any]) -> str:
    """Format a result as plain lines; the last are accuracies such as `  test  86.52 %  21,630 of 25,000`.

    Args:
        run: The folder of the run, for the first line.
        result: The content of its result.json.
    """
    lines = [f"{run}: {result['task']}, {result['parameters']:,} parameters"]
    if "seconds" in result:
        lines.append(f"  trained in {result['seconds']:.0f} s")
    if result["fire_rates"]:
        lines.append(f"  fire rate  {100 * result['mean_fire_rate']:.2f} %  mean of the layers")
        lines += [f"    {100 * rate:6.2f} %  {layer}" for layer, rate in result["fire_rates"].items()]
    if "classes" in result:
        lines.append(f"  by class of {[*result['accuracy']][-1]}")
    for name, (correct, count) in result.get("classes", {}).items():
        lines.append(f"    {100 * correct / max(1, count):6.2f} %  {correct:,} of {count:,}  {name}")
    for name, share in result["accuracy"].items():
        correct, count = result["correct"][name]
        note = "  (used to select the weights)" if result.get("selected_on") == name else ""
        lines.append(f"  {name}  {100 * share:.2f} %  {correct:,} of {count:,}{note}")
    return "\n".join(lines)
