"""Sequential Fashion-MNIST: small pictures of clothes, pixel by pixel, 784 × 1, in [0, 1], not normalised.

55,000 / 5,000 / 10,000: the validation split is a fixed seed's choice of the training files (see idx.py).
"""

import os

from . import idx
from .task import Task

FOLDERS = ("fashion", "fashion-mnist", "FashionMNIST", "FashionMNIST/raw", "raw")
FILES = idx.wanted(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    {
        "train-images": (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        "train-labels": (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        "t10k-images": (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
        "t10k-labels": (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
    },
)
FIRST = (9, 0, 0, 3, 0, 2, 7, 2, 5, 5)


def load(
    data_dir: str | os.PathLike[str] | None = None, shift: float = 0.0, turn: float = 0.0, stretch: float = 0.0,
    bend: float = 0.0,
) -> Task:  # fmt: skip
    return idx.load("fashion", FOLDERS, FILES, FIRST, data_dir, None, shift, turn, stretch, bend)
