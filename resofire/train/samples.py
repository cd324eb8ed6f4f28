"""Sample sequences stored with a network, so that export, measure and stream work without its data set.

samples.npz has the form of data.npz (`source`): one split, train, of a few training sequences, and the names of tokens
and classes. Every shipped network has one.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np

from ..atomic import write_atomic
from ..data.task import Split, Task, pack
from .record import RunError
from .source import from_npz, to_npz

SAMPLES = "samples.npz"
# Limits of a file, so that it is small enough to be shipped with the package.
MAX_SEQUENCES, MAX_BYTES = 80, 100_000


def sample_order(count: int) -> np.ndarray:
    """The order in which samples are taken from `count` sequences, the same on every machine; [count]."""
    return np.random.RandomState(0).permutation(count)


def save_samples(task: Task, folder: str | os.PathLike[str], count: int = MAX_SEQUENCES) -> Path:
    """Save some training sequences of a task with a network, as samples.npz.

    They are those that `resofire export` takes from the whole training split, in the same order.

    Args:
        task: The data.
        folder: The run folder.
        count: How many sequences, at most 80.

    Returns:
        The file.

    Raises:
        ValueError: `count` is out of range.
        RunError: The file would be larger than 100 kB, or the split is not a plain `Split`.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_SEQUENCES:
        raise ValueError(f"save_samples: count must be an integer from 1 to {MAX_SEQUENCES}, got {count!r}")
    split = task["train"]
    if type(split) is not Split:
        raise RunError(f"save_samples: the training split must be a data.Split, got {type(split).__name__}")
    split = _subset(split, sample_order(len(split))[:count])
    content = to_npz(dataclasses.replace(task, splits={"train": split}))
    if len(content) > MAX_BYTES:
        raise RunError(f"save_samples: samples must fit into {MAX_BYTES:,} bytes, got {len(content):,}; take fewer")
    file = Path(folder) / SAMPLES
    write_atomic(file, content)
    return file


def load_samples(folder: str | os.PathLike[str]) -> Task | None:
    """The sample sequences of a network, in the order to use them in; None if it has none.

    Raises:
        RunError: The file cannot be read.
    """
    file = Path(folder) / SAMPLES
    return from_npz(file) if file.is_file() else None


def _subset(split: Split, rows: np.ndarray) -> Split:
    """A split of some samples, without augmentation."""
    if split.bounds is None:
        stored, labels, bounds = split.stored[rows], split.labels[rows], None
    else:
        each = np.stack([2 * rows, 2 * rows + 1], 1).reshape(-1) if split.pairs else rows
        pieces = [slice(split.bounds[row], split.bounds[row + 1]) for row in each]
        stored, bounds = pack([split.stored[piece] for piece in pieces])
        labels = np.concatenate([split.labels[piece] for piece in pieces]) if split.per_step else split.labels[rows]
    return Split(
        stored, labels, kind=split.kind, form=split.form, bounds=bounds, pairs=split.pairs, per_step=split.per_step
    )
