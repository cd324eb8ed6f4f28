"""Handwritten digits of scikit-learn: 1,797 images of 8 × 8, as sequences of 64 values in [0, 1].

Needs no download. 1,297 / 200 / 300 random images.
"""

import numpy as np

from .files import Folder
from .registry import dataset
from .store import Prepared, prepared
from .task import Form, Task, make_splits, shuffled

VERSION = 1
SEED = 0
SIZES = {"train": 1_297, "validation": 200, "test": 300}


@dataset("digits", about="1,797 handwritten digits of 8 x 8 pixels; comes with scikit-learn")
def digits(data_dir: Folder = None) -> Task:
    """Load the digits; `data_dir` is accepted as by all data sets and not needed."""
    arrays, _ = prepared("digits", {"version": VERSION, "seed": SEED, "sizes": SIZES}, _make)
    splits = make_splits(arrays, "values", Form(scale=1 / 16))
    return Task("digits", "values", 10, splits, inputs=1, class_names=tuple("0123456789"))


def _make() -> Prepared:
    from sklearn.datasets import load_digits

    x, labels = load_digits(return_X_y=True)
    x, labels = x.astype(np.uint8)[..., None], labels.astype(np.uint8)
    order = shuffled(len(x), SEED, 0)
    arrays, first = {}, 0
    for split, size in SIZES.items():
        chosen = np.sort(order[first : first + size])
        arrays[f"{split}_x"], arrays[f"{split}_labels"] = x[chosen], labels[chosen]
        first += size
    return arrays, {"source": "sklearn.datasets.load_digits"}
