"""Permuted sequential MNIST: the pixels of smnist in another order, the same for all images.

Two permutations circulate, and results with one are not comparable to results with the other:

    bitrev    the numbers 0..1023 with their ten bits reversed, those below 784
    random    numpy.random.RandomState(92916).permutation(784)

Step t shows pixel permutation[t]. Training images are warped before, if told so, see warps.py.
"""

import os

import numpy as np

from . import idx
from .smnist import FILES, FIRST, FOLDERS
from .task import Task

PERMUTATIONS = ("bitrev", "random")
PIXELS = 784


def load(
    data_dir: str | os.PathLike[str] | None = None, permutation: str = "bitrev", shift: float = 0.0, turn: float = 0.0,
    stretch: float = 0.0, bend: float = 0.0,
) -> Task:  # fmt: skip
    return idx.load("psmnist", FOLDERS, FILES, FIRST, data_dir, pixel_order(permutation), shift, turn, stretch, bend)


def pixel_order(permutation: str) -> np.ndarray:
    """Which pixel each time step shows, [784]."""
    if permutation == "bitrev":
        reversed_bits = [int(f"{number:010b}"[::-1], 2) for number in range(1024)]
        return np.array([number for number in reversed_bits if number < PIXELS])
    if permutation == "random":
        return np.random.RandomState(92916).permutation(PIXELS)
    raise ValueError(f"psmnist: permutation must be one of {', '.join(PERMUTATIONS)}, got {permutation!r}")
