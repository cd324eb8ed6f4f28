"""Checks of a task whose arrays come from an untrusted file."""

import math
from typing import Any

import numpy as np

from .task import IGNORED, SPLITS, DataError, Split, Task


def require_sound(task: Task) -> None:
    """Check that the arrays of a task fit each other and its description; reads all of them. Raises DataError."""
    _require(task.kind in ("values", "tokens"), f"kind must be values or tokens, got {task.kind!r}")
    size = "inputs" if task.kind == "values" else "vocabulary"
    for name in ("classes", size):
        value = getattr(task, name)
        _require(type(value) is int and value > 0, f"{name} must be a positive integer, got {value!r}")
    for name in ("class_names", "symbols"):
        words = getattr(task, name)
        fits = words is None or (isinstance(words, tuple) and all(isinstance(word, str) for word in words))
        _require(fits, f"{name} must be a list of words")
    _require(isinstance(task.name, str), f"name must be a text, got {task.name!r}")
    _require("train" in task.splits, "there must be a train split")
    for name, split in task.splits.items():
        _require(name in SPLITS, f"splits must be some of {', '.join(SPLITS)}, got {name!r}")
        same = (split.kind, bool(split.pairs), bool(split.per_step)) == (task.kind, task.pairs, task.per_step)
        _require(same, f"{name} must be of the kind of the task")
        try:
            _require_split(split, task)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise DataError(sentence[:300])


def _require_split(split: Split, task: Task) -> None:
    stored, labels, bounds = split.stored, split.labels, split.bounds
    dimensions = (1 if split.bounds is not None else 2) + (task.kind == "values")
    _require(
        _numeric(stored, "iufb") and stored.ndim == dimensions, f"stored must be numbers of {dimensions} dimensions"
    )
    if bounds is not None:
        _require(_numeric(bounds, "iu") and bounds.ndim == 1 and len(bounds) > 0, "bounds must be a list of integers")
        rising = bool((bounds[1:] >= bounds[:-1]).all())
        _require(rising and bounds[0] == 0 and bounds[-1] == len(stored), f"bounds must rise from 0 to {len(stored)}")
        _require(not split.pairs or len(bounds) % 2 == 1, "pairs must have two sequences each")
    _require(bounds is not None or not split.pairs, "pairs must have bounds")
    if task.kind == "values":
        _require(stored.shape[-1] == task.inputs, f"stored must have {task.inputs} channels, got {stored.shape[-1]}")
    elif stored.size:
        _require(stored.dtype.kind in "iu", "tokens must be integers")
        _require(stored.min() >= 0 and stored.max() < (task.vocabulary or 0), "tokens must be in the vocabulary")
    shape = (stored.shape[:1] if bounds is not None else stored.shape[:2]) if split.per_step else (len(split),)
    _require(_numeric(labels, "iu") and labels.shape == shape, f"labels must be integers of shape {shape}")
    known = labels[labels != IGNORED] if split.per_step else labels
    _require(not known.size or (known.min() >= 0 and known.max() < task.classes), "labels must be classes")
    _require_form(split, stored.shape[1] if bounds is None else None, task.inputs or 1)


def _require_form(split: Split, steps: int | None, channels: int) -> None:
    order, warps = split.form.order, split.warps
    if order is not None:
        fits = _numeric(order, "iu") and order.shape == (steps,)
        _require(fits and bool((np.sort(order) == np.arange(len(order))).all()), "order must be a permutation of steps")
    for name in ("scale", "shift"):
        value = getattr(split.form, name)
        numbers = value if isinstance(value, tuple) and len(value) == channels else (value,)
        _require(all(_finite(number) for number in numbers), f"{name} must be a number, or one for each channel")
    if warps is not None:
        limits = (warps.shift, warps.turn, warps.stretch, warps.bend)
        _require(all(_finite(limit) for limit in limits), "warps must be numbers")
        _require(type(warps.side) is int and warps.side > 1 and warps.side**2 == steps, "warps must fit the images")


def _numeric(array: Any, kinds: str) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in kinds


def _finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(np.float32(number))
