"""Sequences and labels as they come from users, checked and brought into one form before a task is made of them.

Every mistake is one sentence that names its place: "sequence 3, step 2, channel 1", or file, line and column.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from .task import IGNORED, DataError, Split, pack

MISSING = ("refuse", "zero", "previous", "interpolate")
# Where a value is: the numbers of its sequence and, where they matter, of its step and channel.
Where = Callable[[int, int | None, int | None], str]


def place(sequence: int, step: int | None = None, channel: int | None = None) -> str:
    """The place of a value in arrays."""
    parts = (("sequence", sequence), ("step", step), ("channel", channel))
    return ", ".join(f"{name} {number}" for name, number in parts if number is not None)


@dataclass(frozen=True)
class Reading:
    """How to read a user's data.

    Attributes:
        owner: The function that was called, for messages.
        missing: What to do with NaN: see `from_arrays`.
        padded: Whether NaN at the end of a sequence is padding.
        which: "", "test " or "validation ", for messages.
        where: Names the place of a value.
    """

    owner: str
    missing: str = "refuse"
    padded: bool = False
    which: str = ""
    where: Where = place

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise DataError(f"{self.owner}: missing must be one of {', '.join(MISSING)}, got {self.missing!r}")
        if not isinstance(self.padded, bool):
            raise DataError(f"{self.owner}: padded must be True or False, got {self.padded!r}")

    def error(self, name: str, text: str) -> DataError:
        """The error for an argument, `name` being x or y."""
        return DataError(f"{self.owner}: {self.which}{name} must {text}")


@dataclass(frozen=True)
class Samples:
    """Checked sequences, each [T, C], and their labels, flat: one per sequence or, if `per_step`, per step."""

    reading: Reading
    sequences: list[np.ndarray]
    labels: list[Any]
    per_step: bool
    missing: int

    @staticmethod
    def of(reading: Reading, x: Any, y: Any) -> "Samples":
        """Check sequences and labels; see `from_arrays` for their forms."""
        if isinstance(x, Dataset) and y is None:
            x, y = _pairs(reading, x)
        sequences, missing, lengths = _sequences(reading, x)
        labels, per_step = _labels(reading, y, sequences, lengths)
        return Samples(reading, sequences, labels, per_step, missing)

    @property
    def channels(self) -> int:
        """Channels of every sequence."""
        return self.sequences[0].shape[1]

    @property
    def form(self) -> str:
        """The form that test data must share with training data."""
        return f"{self.channels} channels and one label per {'step' if self.per_step else 'sequence'}"

    def class_names(self) -> list[str]:
        """The names of all labels, in their order: sorted as numbers if they are, else as text, by type first."""
        labels = set(self.labels) - ({IGNORED} if self.per_step else set())
        if len(labels) < 2:
            got = ", ".join(repr(class_name(label)) for label in labels) or "none"
            raise self.reading.error("y", f"have at least two classes, got {got}")
        if len(labels) > max(10, len(self.labels) // 2) and any(
            isinstance(label, float) and not label.is_integer() for label in labels
        ):
            raise self.reading.error("y", f"hold classes, got {len(labels)} different numbers in {len(self.labels)}")
        names = [class_name(label) for label in _ordered(labels)]
        twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
        if twice is not None:
            kinds = " and ".join(repr(label) for label in labels if class_name(label) == twice)
            raise self.reading.error("y", f"have different names for different classes, got {kinds}")
        return names

    def encode(self, names: Sequence[str], of: str = "y") -> np.ndarray:
        """The number of every label's class, flat; `of` says whose classes these are."""
        numbers = {name: number for number, name in enumerate(names)}
        encoded: dict[Any, int | None] = {label: numbers.get(class_name(label)) for label in set(self.labels)}
        if self.per_step and IGNORED in encoded:
            encoded[IGNORED] = IGNORED
        if None in encoded.values():
            at, label = next((at, label) for at, label in enumerate(self.labels) if encoded[label] is None)
            known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            where = self._place(at)
            raise self.reading.error("y", f"have the classes of {of} ({known}), {where} has {class_name(label)!r}")
        return np.array([encoded[label] for label in self.labels], np.int64)

    def split(self, rows: np.ndarray, encoded: np.ndarray) -> Split:
        """Some of the sequences as a split, with their encoded labels."""
        if self.per_step:
            ends = np.cumsum([len(sequence) for sequence in self.sequences])
            parts = [encoded[ends[row] - len(self.sequences[row]) : ends[row]] for row in rows]
        sequences = [self.sequences[row] for row in rows]
        if len({len(sequence) for sequence in sequences}) == 1:
            labels = np.stack(parts) if self.per_step else encoded[rows]
            return Split(np.stack(sequences), labels, kind="values", per_step=self.per_step)
        stored, bounds = pack(sequences)
        labels = np.concatenate(parts) if self.per_step else encoded[rows]
        return Split(stored, labels, kind="values", bounds=bounds, per_step=self.per_step)

    def _place(self, at: int) -> str:
        """The place of a flat label."""
        return _label_place(self.reading.where, [len(sequence) for sequence in self.sequences], at, self.per_step)


def read_sequences(reading: Reading, x: Any) -> list[np.ndarray]:
    """Check sequences that have no labels; see `from_arrays` for their forms."""
    return _sequences(reading, x)[0]


def class_name(label: Any) -> str:
    """A label as text; a float that is an integer as that."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _pairs(reading: Reading, dataset: Any) -> tuple[list[Any], list[Any]]:
    """The sequences and labels of a torch Dataset."""
    items: Iterable[Any] = dataset
    if hasattr(dataset, "__len__"):
        items = (dataset[number] for number in range(len(dataset)))
    x, y = [], []
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            got = f"a {type(item).__name__}"
            raise reading.error("x", f"be a Dataset of pairs (sequence, label), item {number} is {got}")
        x.append(item[0])
        y.append(item[1])
    return x, y


def _numpy(array: Any) -> Any:
    """A tensor or data frame as an array; anything else as it is."""
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu()
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy()
    return array.to_numpy() if hasattr(array, "to_numpy") else array


def _absent(value: Any) -> bool:
    """Whether a value or label is None, NaN, or pandas' NA, which refuses to be compared."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _sequences(reading: Reading, x: Any) -> tuple[list[np.ndarray], int, list[int]]:
    """The sequences, how many values were missing, and the lengths before padding was cut."""
    x = _numpy(x)
    if not isinstance(x, np.ndarray | list | tuple):
        raise reading.error("x", f"be an array or a list of arrays, got {type(x).__name__}")
    if isinstance(x, np.ndarray) and x.dtype != object and x.ndim not in (2, 3):
        raise reading.error("x", f"be [n, T], [n, T, C] or a list of [T, C], got shape {list(x.shape)}")
    if len(x) == 0:
        raise reading.error("x", "hold sequences, got none")
    sequences: list[np.ndarray] = []
    lengths, missing = [], 0
    for number, sequence in enumerate(x):
        array = _array(reading, number, sequence)
        if sequences and array.shape[1] != sequences[0].shape[1]:
            channels = f"{reading.where(number, None, None)} has {array.shape[1]}, "
            channels += f"{reading.where(0, None, None)} has {sequences[0].shape[1]}"
            raise reading.error("x", f"have the same channels everywhere, {channels}")
        lengths.append(len(array))
        with np.errstate(over="ignore"):
            # Small integers stay as they are; a batch converts them.
            values = array if array.dtype in (np.uint8, np.int8, np.int16) else array.astype(np.float32)
        if not np.isfinite(values).all():
            values, count = _completed(reading, number, array, values)
            missing += count
        sequences.append(values)
    return sequences, missing, lengths


def _array(reading: Reading, number: int, sequence: Any) -> np.ndarray:
    """One sequence as an array of real numbers, [T, C]."""
    where = reading.where(number, None, None)
    try:
        array = np.asarray(_numpy(sequence))
        if array.dtype == object:
            array = np.frompyfunc(lambda value: np.nan if _absent(value) else value, 1, 1)(array).astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        raise reading.error("x", f"hold numbers, [T] or [T, C], {where} is ragged or no numbers") from None
    if array.dtype.kind not in "iufb":
        raise reading.error("x", f"hold real numbers, {where} has type {array.dtype}")
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise reading.error("x", f"be [T] or [T, C] and not empty, {where} has shape {list(array.shape)}")
    return array.reshape(len(array), -1)


def _completed(reading: Reading, number: int, array: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, int]:
    """A sequence without padding, its missing values filled in, and how many they were."""
    nan = np.isnan(values)
    ends = np.flatnonzero(~nan.all(1))
    padding = not len(ends) or ends[-1] + 1 < len(values)
    if reading.padded and padding:
        if not len(ends):
            raise reading.error("x", f"hold numbers, {reading.where(number, None, None)} has none")
        values, nan = values[: ends[-1] + 1], nan[: ends[-1] + 1]
    refused = ~np.isfinite(values) if reading.missing == "refuse" else np.isinf(values)
    for step, channel in np.argwhere(refused)[:1]:
        where, value = reading.where(number, int(step), int(channel)), array[step, channel]
        advice = ""
        if np.isnan(value):
            advice = f"; the setting missing fills such values ({', '.join(MISSING[1:])})"
            advice += ", padded=True cuts them at the end" if padding and not reading.padded else ""
        raise reading.error("x", f"be finite in float32, {where} is {value}{advice}")
    return _filled(reading, number, values, nan), int(nan.sum())


def _filled(reading: Reading, number: int, values: np.ndarray, nan: np.ndarray) -> np.ndarray:
    """Values [T, C] with those that are NaN filled in; before the first known value of a channel, that one counts."""
    if reading.missing in ("refuse", "zero"):
        return np.where(nan, np.float32(0), values)
    values, steps = values.copy(), np.arange(len(values))
    for channel in np.flatnonzero(nan.any(0)):
        known = np.flatnonzero(~nan[:, channel])
        if not len(known):
            where = reading.where(number, None, int(channel))
            raise reading.error("x", f"hold a value to fill others from, {where} has none; missing=zero needs none")
        if reading.missing == "previous":
            before = np.maximum(np.searchsorted(known, steps, side="right") - 1, 0)
            values[:, channel] = values[known[before], channel]
        else:
            values[:, channel] = np.interp(steps, known, values[known, channel])
    return values


def _labels(reading: Reading, y: Any, sequences: list[np.ndarray], lengths: list[int]) -> tuple[list[Any], bool]:
    """Labels as Python objects, flat, and whether they are per step."""
    y = _numpy(y)
    if not isinstance(y, np.ndarray | list | tuple) or (isinstance(y, np.ndarray) and y.ndim == 0):
        raise reading.error("y", f"be a list or an array of labels, got {type(y).__name__}")
    if len(y) != len(sequences):
        raise reading.error("y", f"have {len(sequences)} labels, one per sequence, got {len(y)}")
    rows = [_numpy(row) for row in y]
    rows = [row.tolist() if isinstance(row, np.ndarray | np.generic) else row for row in rows]
    # A column [n, 1], as data frames have it.
    if all(isinstance(row, list) and len(row) == 1 for row in rows) and max(lengths) > 1:
        rows = [row[0] for row in rows]
    per_step = isinstance(rows[0], list | tuple)
    for number, row in enumerate(rows):
        if isinstance(row, list | tuple) != per_step:
            first, this = reading.where(0, None, None), reading.where(number, None, None)
            raise reading.error("y", f"have labels of one form, {first} and {this} differ")
        if per_step and len(row) != lengths[number]:
            got = f"{reading.where(number, None, None)} has {lengths[number]} steps and {len(row)} labels"
            if all(
                isinstance(each, list | tuple) and (each.count(0), each.count(1)) == (len(each) - 1, 1) for each in rows
            ):
                got += "; for one-hot labels, pass y.argmax(1)"
            raise reading.error("y", f"have one label per step, {got}")
    if per_step:
        # Padding was cut.
        rows = [row[: len(sequence)] for row, sequence in zip(rows, sequences, strict=True)]
    labels = [label for row in rows for label in row] if per_step else rows
    for at, label in enumerate(labels):
        if isinstance(label, list | dict | set | tuple) or _absent(label):
            where = _label_place(reading.where, [len(sequence) for sequence in sequences], at, per_step)
            raise reading.error("y", f"have a label for {where}, got {label!r}")
    return labels, per_step


def _label_place(where: Where, lengths: list[int], at: int, per_step: bool) -> str:
    if not per_step:
        return where(at, None, None)
    ends = np.cumsum(lengths)
    number = int(np.searchsorted(ends, at, side="right"))
    return where(number, at - int(ends[number]) + lengths[number], None)


def _ordered(labels: set[Any]) -> list[Any]:
    try:
        if all(isinstance(label, str) for label in labels):
            return sorted(labels, key=float)
    except ValueError:
        pass
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=lambda label: (type(label).__name__, str(label)))
