"""Sequential CIFAR-10 in colour, pixel by pixel, 1024 × 3 (red, green, blue).

Each channel is (value / 255 − mean) / deviation with the customary (0.4914, 0.4822, 0.4465) and (0.247, 0.243, 0.261).
45,000 / 5,000 / 10,000: the validation split is a fixed seed's choice of the training batches.
"""

import os

from . import cifar
from .task import Form, Split, Task

MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.247, 0.243, 0.261)


def load(data_dir: str | os.PathLike[str] | None = None) -> Task:
    arrays, _ = cifar.load("scifar", lambda x: x, data_dir)
    form = Form(
        scale=tuple(1 / (255 * deviation) for deviation in DEVIATION),
        shift=tuple(-mean / deviation for mean, deviation in zip(MEAN, DEVIATION, strict=True)),
    )
    splits = {
        split: Split(arrays[f"{split}_x"], arrays[f"{split}_labels"], kind="values", form=form)
        for split in ("train", "validation", "test")
    }
    return Task("scifar", "values", cifar.CLASSES, splits, inputs=3)
