"""Tasks of arrays in memory: `from_arrays` checks them, encodes the labels and splits them."""

from typing import Any, NamedTuple

import numpy as np
import torch

from .task import IGNORED, SPLITS, DataError, Split, Task, pack, shuffled

SEED = 0


def from_arrays(
    x: Any, y: Any, *, test: tuple[Any, Any] | float | None = None, validation: tuple[Any, Any] | float = 0.1,
    name: str = "own",
) -> Task:  # fmt: skip
    """Make a task of sequences and labels in memory.

    Args:
        x: Sequences: an array or tensor [n, T] or [n, T, C], or a list of [T_i] or [T_i, C]. Numbers, all finite.
        y: Labels of any type, [n]; or one per time step, [n, T] or a list of [T_i]. Per step, −100 marks a step without
            a label.
        test: Test data (x, y), the fraction of x to hold out, or None for no test split.
        validation: Validation data (x, y), or the fraction to hold out of what remains; 0 for no validation split.
            Fractions are stratified by class, except with labels per step.
        name: Name of the task.

    Returns:
        The task. Labels are numbered in sorted order; `class_names` has them as text.

    Raises:
        DataError: If the data are unfit; names the sequence and position.

    Example:
        >>> task = from_arrays(np.random.randn(100, 50, 3), ["walk", "run"] * 50, test=0.2)
        >>> task.classes, task.class_names, len(task["test"])
        (2, ('run', 'walk'), 20)
    """
    own = _Samples.of("", x, y)
    classes = _classes(own)
    rows = {"train": np.arange(len(own.sequences))}
    splits: dict[str, Split] = {}
    for split, part in (("test", test), ("validation", validation)):
        if isinstance(part, tuple | list) and len(part) == 2:
            other = _Samples.of(f"{split} ", *part)
            if (other.channels, other.per_step) != (own.channels, own.per_step):
                raise DataError(f"from_arrays: {split} must have {own.form}, like x and y, got {other.form}")
            splits[split] = other.split(np.arange(len(other.sequences)), classes)
        elif part is not None and (isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part < 1):
            raise DataError(f"from_arrays: {split} must be (x, y) or a fraction from 0 to below 1, got {part!r}")
        elif part:
            rows["train"], rows[split] = _hold_out(own, rows["train"], part, split)
    splits |= {split: own.split(chosen, classes) for split, chosen in rows.items()}
    return Task(
        name, "values", len(classes), {split: splits[split] for split in SPLITS if split in splits},
        inputs=own.channels, per_step=own.per_step, class_names=tuple(map(_class_name, classes)),
    )  # fmt: skip


class _Samples(NamedTuple):
    """Checked sequences, each [T, C] float32, and their labels, flat: one per sequence or, if `per_step`, per step."""

    which: str  # "", "test " or "validation ", for messages
    sequences: list[np.ndarray]
    labels: list[Any]
    per_step: bool

    @staticmethod
    def of(which: str, x: Any, y: Any) -> "_Samples":
        sequences = _sequences(f"{which}x", x)
        labels, per_step = _labels(f"{which}y", y, sequences)
        return _Samples(which, sequences, labels, per_step)

    @property
    def channels(self) -> int:
        return self.sequences[0].shape[1]

    @property
    def form(self) -> str:
        return f"{self.channels} channels and one label per {'step' if self.per_step else 'sequence'}"

    def split(self, rows: np.ndarray, classes: list[Any]) -> Split:
        numbers = {label: number for number, label in enumerate(classes)}
        if self.per_step:
            numbers[IGNORED] = IGNORED
        for place, label in enumerate(self.labels):
            if label not in numbers:
                where = _place(self.sequences, place, self.per_step)
                raise DataError(f"from_arrays: {self.which}y must have the classes of y, {where} has {label!r}")
        labels = np.array([numbers[label] for label in self.labels])
        if self.per_step:
            ends = np.cumsum([len(sequence) for sequence in self.sequences])
            parts = [labels[ends[row] - len(self.sequences[row]) : ends[row]] for row in rows]
        sequences = [self.sequences[row] for row in rows]
        if len({len(sequence) for sequence in sequences}) == 1:
            labels = np.stack(parts) if self.per_step else labels[rows]
            return Split(np.stack(sequences), labels, kind="values", per_step=self.per_step)
        stored, bounds = pack(sequences)
        labels = np.concatenate(parts) if self.per_step else labels[rows]
        return Split(stored, labels, kind="values", bounds=bounds, per_step=self.per_step)


def _numpy(array: Any) -> Any:
    """A tensor or data frame as an array; anything else as it is."""
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu()
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy()
    return array.to_numpy() if hasattr(array, "to_numpy") else array


def _sequences(name: str, x: Any) -> list[np.ndarray]:
    x = _numpy(x)
    if not isinstance(x, np.ndarray | list | tuple):
        raise DataError(f"from_arrays: {name} must be an array or a list of arrays, got {type(x).__name__}")
    if isinstance(x, np.ndarray) and x.dtype != object and x.ndim not in (2, 3):
        raise DataError(f"from_arrays: {name} must be [n, T], [n, T, C] or a list of [T, C], got shape {list(x.shape)}")
    if len(x) == 0:
        raise DataError(f"from_arrays: {name} must hold sequences, got none")
    sequences: list[np.ndarray] = []
    for number, sequence in enumerate(x):
        start = f"from_arrays: {name} must"
        try:
            array = np.asarray(_numpy(sequence))
            array = array.astype(np.float64) if array.dtype == object else array
        except (ValueError, TypeError):
            raise DataError(f"{start} hold numbers, [T] or [T, C], sequence {number} is ragged or no numbers") from None
        if array.dtype.kind not in "iufb":
            raise DataError(f"{start} hold real numbers, sequence {number} has type {array.dtype}")
        if array.ndim not in (1, 2) or 0 in array.shape:
            raise DataError(f"{start} be [T] or [T, C] and not empty, sequence {number} has shape {list(array.shape)}")
        array = array.reshape(len(array), -1)
        if sequences and array.shape[1] != sequences[0].shape[1]:
            channels = f"sequence {number} has {array.shape[1]}, sequence 0 has {sequences[0].shape[1]}"
            raise DataError(f"{start} have the same channels everywhere, {channels}")
        with np.errstate(over="ignore"):
            values = array.astype(np.float32)
        for step, channel in np.argwhere(~np.isfinite(values))[:1]:
            place = f"sequence {number}, step {step}, channel {channel}"
            raise DataError(f"{start} be finite in float32, {place} is {array[step, channel]}")
        sequences.append(values)
    return sequences


def _labels(name: str, y: Any, sequences: list[np.ndarray]) -> tuple[list[Any], bool]:
    """Labels as Python objects, flat, and whether they are per step."""
    y = _numpy(y)
    if not isinstance(y, np.ndarray | list | tuple) or (isinstance(y, np.ndarray) and y.ndim == 0):
        raise DataError(f"from_arrays: {name} must be a list or an array of labels, got {type(y).__name__}")
    if len(y) != len(sequences):
        raise DataError(f"from_arrays: {name} must have {len(sequences)} labels, one per sequence, got {len(y)}")
    rows = [_numpy(row) for row in y]
    rows = [row.tolist() if isinstance(row, np.ndarray | np.generic) else row for row in rows]
    # A column [n, 1], as data frames have it.
    if all(isinstance(row, list) and len(row) == 1 for row in rows) and max(map(len, sequences)) > 1:
        rows = [row[0] for row in rows]
    per_step = isinstance(rows[0], list | tuple)
    for number, row in enumerate(rows):
        steps = len(sequences[number])
        if isinstance(row, list | tuple) != per_step:
            raise DataError(f"from_arrays: {name} must have labels of one form, sequences 0 and {number} differ")
        if per_step and len(row) != steps:
            got = f"sequence {number} has {steps} steps and {len(row)} labels"
            raise DataError(f"from_arrays: {name} must have one label per step, {got}")
    labels = [label for row in rows for label in row] if per_step else rows
    for place, label in enumerate(labels):
        if label is None or label != label or isinstance(label, list | dict | set):
            where = _place(sequences, place, per_step)
            raise DataError(f"from_arrays: {name} must have a label for {where}, got {label!r}")
    return labels, per_step


def _place(sequences: list[np.ndarray], place: int, per_step: bool) -> str:
    """Where a flat label belongs."""
    if not per_step:
        return f"sequence {place}"
    ends = np.cumsum([len(sequence) for sequence in sequences])
    number = int(np.searchsorted(ends, place, side="right"))
    return f"sequence {number}, step {place - int(ends[number]) + len(sequences[number])}"


def _classes(samples: _Samples) -> list[Any]:
    """All labels that occur, sorted; of several types, by type first."""
    labels = set(samples.labels) - ({IGNORED} if samples.per_step else set())
    if len(labels) < 2:
        got = ", ".join(repr(_class_name(label)) for label in labels) or "none"
        raise DataError(f"from_arrays: y must have at least two classes, got {got}")
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=lambda label: (type(label).__name__, str(label)))


def _class_name(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _hold_out(samples: _Samples, rows: np.ndarray, fraction: float, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows to keep and rows to hold out, stratified; each class keeps at least one."""
    groups: dict[Any, list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(None if samples.per_step else samples.labels[row], []).append(row)
    members = list(groups.values())
    shares = [fraction * len(group) for group in members]
    counts = [min(int(share), len(group) - 1) for share, group in zip(shares, members, strict=True)]
    # Largest remainders first, so that rare classes together get their share.
    for number in sorted(range(len(members)), key=lambda number: counts[number] - shares[number]):
        if sum(counts) < max(1, round(fraction * len(rows))) and counts[number] < len(members[number]) - 1:
            counts[number] += 1
    if not sum(counts):
        got = f"got {len(rows)} sequences in {len(members)} classes"
        raise DataError(f"from_arrays: {split}={fraction:g} needs a class with two sequences, {got}")
    epoch = SPLITS.index(split)
    held_out = [
        np.array(group)[shuffled(len(group), SEED, epoch)[:count]] for group, count in zip(members, counts, strict=True)
    ]
    return np.setdiff1d(rows, np.concatenate(held_out)), np.sort(np.concatenate(held_out))
