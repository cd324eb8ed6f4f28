"""Sequential MNIST: the pixels of a handwritten digit one after the other, 784 × 1, in [0, 1], not normalised.

55,000 / 5,000 / 10,000: the validation split is a fixed seed's choice of the training files (see idx.py).
Training images are warped a little, if told so: `shift`, `turn`, `stretch` and `bend`, see warps.py.
"""

import os

from . import idx
from .task import Task

FOLDERS = ("mnist", "smnist", "psmnist", "MNIST", "MNIST/raw", "raw")
FILES = idx.wanted(
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    {
        "train-images": (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        "train-labels": (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        "t10k-images": (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        "t10k-labels": (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    },
)
FIRST = (5, 0, 4, 1, 9, 2, 1, 3, 1, 4)


def load(
    data_dir: str | os.PathLike[str] | None = None, shift: float = 0.0, turn: float = 0.0, stretch: float = 0.0,
    bend: float = 0.0,
) -> Task:  # fmt: skip
    return idx.load("smnist", FOLDERS, FILES, FIRST, data_dir, None, shift, turn, stretch, bend)
