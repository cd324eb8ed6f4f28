"""What a trained network comes to, by a way that anyone can go again: same batches, same order, counts."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

from ..models.network import Network
from .score import score
from .stream import Task

RESULT = "result.json"
FIGURES = {"accuracy", "correct", "loss", "fire_rates", "mean_fire_rate", "parameters"}
SPLITS = ("train", "validation", "test")


def evaluate(model: Network, task: Task, batch: int) -> dict[str, Any]:
    """Accuracy on each split, fire rate of each layer (on the test split), size.

    Of the training split the first batches are looked at, no more than the test split has."""
    parts = {name: task.splits[name] for name in SPLITS if name in task.splits}
    most = -(-len(parts["test"]) // batch)
    scores = {
        name: score(model, islice(split.batches(batch), most) if name == "train" else split.batches(batch))
        for name, split in parts.items()
    }
    rates = scores["test"].rates
    return {
        "task": task.name,
        "accuracy": {name: found.accuracy for name, found in scores.items()},
        "correct": {name: [found.correct, found.count] for name, found in scores.items()},
        "loss": {name: found.mean_loss for name, found in scores.items()},
        "fire_rates": rates,
        "mean_fire_rate": sum(rates.values()) / max(1, len(rates)),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def recorded(run: Path) -> dict[str, Any] | None:
    """What a run's result.json says; None if it has none (yet), or a damaged one."""
    try:
        found = json.loads((run / RESULT).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.keys() >= FIGURES else None


def report(run: Path, result: dict[str, Any]) -> str:
    """For a person."""
    lines = [f"{run}: {result['task']}, {result['parameters']:,} parameters"]
    for name, share in result["accuracy"].items():
        correct, count = result["correct"][name]
        note = "  (the weights were chosen on it)" if result.get("selected_on") == name else ""
        lines.append(f"  {name:<11}{100 * share:6.2f} %  {correct:,} of {count:,}{note}")
    lines.append(f"  fire rate  {100 * result['mean_fire_rate']:6.2f} %  mean of the layers below")
    lines += [f"    {100 * rate:6.2f} %  {layer}" for layer, rate in result["fire_rates"].items()]
    if "seconds" in result:
        lines.append(f"  trained in {result['seconds']:.0f} s")
    return "\n".join(lines)
