"""Views of a data set: its statistics, some samples as text, a picture of more."""

import math
from typing import Any

import numpy as np

from .task import Batch, Task

COLUMNS, TILE, EDGE = 8, 96, 16


def facts(task: Task) -> dict[str, Any]:
    """Statistics of a task: sizes, lengths and classes of each split, in JSON types."""
    statistics: dict[str, Any] = {
        "name": task.name, "kind": task.kind, "classes": task.classes, "inputs": task.inputs,
        "vocabulary": task.vocabulary, "pairs": task.pairs, "per_step": task.per_step,
        "class_names": task.class_names, "splits": {},
    }  # fmt: skip
    for name, split in task.splits.items():
        lengths = split.lengths.reshape(-1)
        labels = np.asarray(split.labels).reshape(-1).astype(np.int64)
        statistics["splits"][name] = {
            "size": len(split),
            "length_mean": float(lengths.mean()) if len(lengths) else 0.0,
            "length_quartiles": np.percentile(lengths, [0, 25, 50, 75, 100]).tolist() if len(lengths) else [],
            # Steps without a label are negative.
            "labels": np.bincount(labels[labels >= 0], minlength=task.classes).tolist(),
        }
    return statistics


def report(task: Task, samples: int = 3) -> str:
    """Describe a task: statistics and a few samples as text."""
    what = f"{task.vocabulary} tokens" if task.kind == "tokens" else f"values in {task.inputs} channel(s)"
    lines = [f"{task.name}: {what}, {task.classes} classes{', pairs' if task.pairs else ''}"]
    for name, split in facts(task)["splits"].items():
        low, *_, high = split["length_quartiles"] or [0, 0]
        lines.append(
            f"  {name:<10} {split['size']:>7} of length {low:.0f} to {high:.0f}, mean {split['length_mean']:.0f}"
        )
        lines.append(f"  {'':<10} per class {split['labels']}")
    split_name, split = next(iter(task.splits.items()))
    for i in evenly_spaced(len(split), samples):
        lines.append(f"  {split_name}[{i}] {_text(task, split.batch(np.array([i])))}")
    return "\n".join(lines)


def evenly_spaced(size: int, count: int) -> list[int]:
    """At most `count` numbers below `size`, evenly spaced: many sets are stored class by class."""
    return [i * size // count for i in range(count)] if count < size else list(range(size))


def _text(task: Task, one: Batch) -> str:
    flat = one.x.reshape(-1)
    label = one.labels.reshape(-1)
    if label.numel() == 1:
        name = str(int(label)) if task.class_names is None else task.class_names[int(label)]
        kind = f"label {int(label)}" + (f" ({name})" if name != str(int(label)) else "")
    else:
        kind = f"labels {label[:8].tolist()}…"
    if task.kind == "values":
        shown = " ".join(f"{float(value):.2f}" for value in flat[:12])
        return f"{kind}: {shown}… (from {float(flat.min()):.2f} to {float(flat.max()):.2f})"
    ids = flat[:60].tolist()
    if task.symbols is None:
        return f"{kind}: {' '.join(map(str, ids[:30]))}…"
    pieces = [task.symbols[i] for i in ids]
    joint = "" if all(len(piece) == 1 or piece.startswith("<") for piece in pieces) else " "
    return f"{kind}: {joint.join(pieces)!r}…"


def picture(task: Task, count: int = 40) -> Any:
    """Draw samples with their labels as a PIL image: square sequences as pictures, others as curves."""
    from PIL import Image, ImageDraw

    split = next(iter(task.splits.values()))
    chosen = evenly_spaced(len(split), count)
    count = len(chosen)
    sheet = Image.new("L", (COLUMNS * (TILE + 4), math.ceil(count / COLUMNS) * (TILE + EDGE)), 255)
    pen = ImageDraw.Draw(sheet)
    for i, number in enumerate(chosen):
        one = split.batch(np.array([number]))
        x, y = i % COLUMNS * (TILE + 4), i // COLUMNS * (TILE + EDGE)
        label = one.labels.reshape(-1)
        pen.text((x + 2, y + 2), str(int(label[0])) if label.numel() == 1 else "by step", fill=0)
        sheet.paste(
            Image.fromarray(_tile(one.x[0].numpy())).resize((TILE, TILE), Image.Resampling.NEAREST), (x, y + EDGE)
        )
    return sheet


def _tile(sequence: np.ndarray) -> np.ndarray:
    """A sequence [T] or [T, C] as a grey square."""
    rows = (sequence if sequence.ndim == 2 else sequence[:, None]).astype(np.float64).mean(1)
    low, high = rows.min(initial=0.0), rows.max(initial=1e-9)
    grey = (255 * (rows - low) / max(high - low, 1e-9)).astype(np.uint8)
    side = math.isqrt(len(grey))
    if side * side == len(grey) and sequence.ndim == 2 and sequence.shape[1] in (1, 3):
        return grey.reshape(side, side)
    if sequence.ndim == 1:
        side = math.ceil(math.sqrt(max(1, len(grey))))
        return np.pad(grey, (0, side * side - len(grey)), constant_values=255).reshape(side, side)
    canvas = np.full((TILE, TILE), 255, np.uint8)
    at = np.linspace(0, len(grey) - 1, TILE * 8).astype(int)
    canvas[(TILE - 1 - grey[at].astype(int) * (TILE - 1) // 255), np.arange(TILE * 8) // 8] = 0
    return canvas
