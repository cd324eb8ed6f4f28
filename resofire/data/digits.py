"""Handwritten digits that come with scikit-learn: 1,797 images of 8 × 8, as sequences of 64 values in [0, 1].

Needs no file and no net. 1,297 / 200 / 300, the choice of a fixed seed.
"""

import os
from typing import Any

import numpy as np

from .store import Arrays, prepared
from .task import Form, Split, Task, shuffled

VERSION = 1
SEED = 0
SIZES = {"train": 1_297, "validation": 200, "test": 300}


def load(data_dir: str | os.PathLike[str] | None = None) -> Task:
    """The task; `data_dir` is taken as by all sets, and not needed."""
    arrays, _ = prepared("digits", {"version": VERSION, "seed": SEED, "sizes": SIZES}, _make)
    splits = {
        split: Split(arrays[f"{split}_x"], arrays[f"{split}_labels"], kind="values", form=Form(scale=1 / 16))
        for split in SIZES
    }
    return Task("digits", "values", 10, splits, inputs=1)


def _make() -> tuple[Arrays, dict[str, Any]]:
    from sklearn.datasets import load_digits

    x, labels = load_digits(return_X_y=True)
    x, labels = x.astype(np.uint8)[..., None], labels.astype(np.uint8)
    choice = shuffled(len(x), SEED, 0)
    arrays, first = {}, 0
    for split, size in SIZES.items():
        chosen = np.sort(choice[first : first + size])
        arrays[f"{split}_x"], arrays[f"{split}_labels"] = x[chosen], labels[chosen]
        first += size
    return arrays, {"source": "sklearn.datasets.load_digits"}
