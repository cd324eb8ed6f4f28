"""Tasks of arrays in memory: `from_arrays` checks them, encodes the labels and splits them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from .samples import Reading, Samples
from .task import SPLITS, DataError, Split, Task, shuffled

SEED = 0
# With fewer sequences, none are held out by default: a small validation split selects nothing, and training needs them.
VALIDATED = 1_000


def from_arrays(
    x: Any, y: Any = None, *, test: tuple[Any, Any] | Dataset[Any] | float | None = None,
    validation: tuple[Any, Any] | Dataset[Any] | float | None = 0.1, name: str = "own", missing: str = "refuse",
    padded: bool = False, class_names: Sequence[str] | None = None,
) -> Task:  # fmt: skip
    """Make a task of sequences and labels in memory.

    Args:
        x: Sequences: an array, tensor or data frame [n, T] or [n, T, C], or a list of [T_i] or [T_i, C]; or a torch
            Dataset of pairs (sequence, label), without `y`.
        y: Labels of any type, [n]; or one per time step, [n, T] or a list of [T_i]. Per step, −100 marks a step without
            a label.
        test: Test data (x, y) or a Dataset, the fraction of x to hold out, or None for no test split.
        validation: Validation data, likewise, or the fraction to hold out of what remains; 0 for no validation split,
            None for a tenth if there are 1,000 sequences. Fractions are stratified by class, except with labels per
            step.
        name: Name of the task.
        missing: What to do with NaN: "refuse" it, or fill it in with "zero", the "previous" value of its channel or
            a line between its neighbours ("interpolate"; not causal). Infinite values are always refused.
        padded: Whether NaN in all channels at the end of a sequence is padding, to be cut.
        class_names: The classes in their order, by name; None takes those of y, sorted.

    Returns:
        The task. Labels are numbered in the order of `class_names`, which has them as text.

    Raises:
        DataError: If the data are unfit; names the sequence and position.

    Example:
        >>> task = from_arrays(np.random.randn(100, 50, 3), ["walk", "run"] * 50, test=0.2)
        >>> task.classes, task.class_names, len(task["test"])
        (2, ('run', 'walk'), 20)
    """
    reading = Reading("from_arrays", missing, padded)
    others: dict[str, Any] = {"test": test, "validation": validation}
    for split, part in others.items():
        pair = (part, None) if isinstance(part, Dataset) else part
        if isinstance(pair, tuple | list) and len(pair) == 2:
            others[split] = Samples.of(replace(reading, which=f"{split} "), *pair)
    return make_task(Samples.of(reading, x, y), **others, name=name, class_names=class_names)


def make_task(
    own: Samples, *, test: Samples | float | None, validation: Samples | float | None, name: str,
    class_names: Sequence[str] | None = None,
) -> Task:  # fmt: skip
    """Make a task of checked samples; the arguments are those of `from_arrays`."""
    owner = own.reading.owner
    names = own.class_names() if class_names is None else _require_names(owner, class_names)
    encoded = own.encode(names, "class_names" if class_names is not None else "y")
    rows = {"train": np.arange(len(own.sequences))}
    splits: dict[str, Split] = {}
    missing = own.missing
    for split, part in (("test", test), ("validation", validation)):
        if isinstance(part, Samples):
            if (part.channels, part.per_step) != (own.channels, own.per_step):
                raise DataError(f"{owner}: {split} must have {own.form}, like x and y, got {part.form}")
            splits[split] = part.split(np.arange(len(part.sequences)), part.encode(names))
            missing += part.missing
        elif split == "validation" and part is None:
            if len(rows["train"]) >= VALIDATED:
                rows["train"], rows[split] = _hold_out(own, encoded, rows["train"], 0.1, split)
        elif part is not None and (isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part < 1):
            raise DataError(f"{owner}: {split} must be (x, y) or a fraction from 0 to below 1, got {part!r}")
        elif part:
            rows["train"], rows[split] = _hold_out(own, encoded, rows["train"], part, split)
    splits |= {split: own.split(chosen, encoded) for split, chosen in rows.items()}
    return Task(
        name, "values", len(names), {split: splits[split] for split in SPLITS if split in splits},
        inputs=own.channels, per_step=own.per_step, class_names=tuple(names), missing=missing,
    )  # fmt: skip


def _require_names(owner: str, names: Sequence[str]) -> Sequence[str]:
    if isinstance(names, str) or len(names) < 2 or len({*names}) < len(names) or not all(
        isinstance(name, str) for name in names
    ):  # fmt: skip
        raise DataError(f"{owner}: class_names must be two or more different names, got {names!r}")
    return names


def _hold_out(
    samples: Samples, encoded: np.ndarray, rows: np.ndarray, fraction: float, split: str
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to keep and rows to hold out, stratified; each class keeps at least one."""
    groups: dict[int, list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(0 if samples.per_step else int(encoded[row]), []).append(row)
    members = list(groups.values())
    shares = [fraction * len(group) for group in members]
    counts = [min(int(share), len(group) - 1) for share, group in zip(shares, members, strict=True)]
    # Largest remainders first, so that rare classes together get their share.
    for number in sorted(range(len(members)), key=lambda number: counts[number] - shares[number]):
        if sum(counts) < max(1, round(fraction * len(rows))) and counts[number] < len(members[number]) - 1:
            counts[number] += 1
    if not sum(counts):
        got = f"got {len(rows)} sequences in {len(members)} classes"
        raise DataError(f"{samples.reading.owner}: {split}={fraction:g} needs a class with two sequences, {got}")
    epoch = SPLITS.index(split)
    held_out = [
        np.array(group)[shuffled(len(group), SEED, epoch)[:count]] for group, count in zip(members, counts, strict=True)
    ]
    return np.setdiff1d(rows, np.concatenate(held_out)), np.sort(np.concatenate(held_out))
