"""Image (Long Range Arena): CIFAR-10 in grey, pixel by pixel, 1024 × 1.

Grey is ITU-R 601 luma, rounded to a byte as Pillow does; values are (grey / 255 − 122.6 / 255) / (61 / 255).
45,000 / 5,000 / 10,000: the validation split is a fixed seed's choice of the training batches.
"""

import os

import numpy as np

from . import cifar
from .task import Form, Split, Task

MEAN, DEVIATION = 122.6, 61.0


def load(data_dir: str | os.PathLike[str] | None = None) -> Task:
    arrays, _ = cifar.load("image", grey, data_dir)
    form = Form(scale=1 / DEVIATION, shift=-MEAN / DEVIATION)
    splits = {
        split: Split(arrays[f"{split}_x"], arrays[f"{split}_labels"], kind="values", form=form)
        for split in ("train", "validation", "test")
    }
    return Task("image", "values", cifar.CLASSES, splits, inputs=1)


def grey(x: np.ndarray) -> np.ndarray:
    """[N, 1024, 3] bytes to [N, 1024, 1] bytes: 0.299 R + 0.587 G + 0.114 B in Pillow's fixed point."""
    out = np.empty((*x.shape[:-1], 1), np.uint8)
    for first in range(0, len(x), 5_000):  # a part at a time: products need four bytes
        part = x[first : first + 5_000].astype(np.uint32)
        out[first : first + 5_000, :, 0] = (
            part[..., 0] * 19595 + part[..., 1] * 38470 + part[..., 2] * 7471 + 0x8000
        ) >> 16
    return out
