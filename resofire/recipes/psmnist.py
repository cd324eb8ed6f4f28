"""MNIST with its pixels in another order, always the same. Two orders circulate, and are not comparable.

psmnist          bitrev: the order of bit-reversed numbers
psmnist-random   random: numpy's RandomState(92916)

Training images are moved, turned and stretched before their pixels are put into order, less than in `smnist`, and there
is no dropout; all else is as there. In the random order they are also bent, and there are more epochs. The shipped
network `psmnist-random` was trained just so; `psmnist-bitrev` differs from its recipe as `smnist` does.
"""

from dataclasses import replace

from ..train import RunConfig
from .smnist import MODEL, smnist


def psmnist() -> RunConfig:
    return replace(
        smnist(), name="psmnist", task="psmnist-bitrev", model=MODEL, epochs=16,
        task_settings={"shift": 0.5, "turn": 5.0, "stretch": 0.05, "bend": 0.0},
    )  # fmt: skip


def psmnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist(), name="psmnist-small", epochs=10)


def psmnist_random() -> RunConfig:
    return replace(
        psmnist(), name="psmnist-random", task="psmnist-random", epochs=28,
        task_settings={"shift": 0.7, "turn": 6.0, "stretch": 0.06, "bend": 1.0},
    )  # fmt: skip


def psmnist_random_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist_random(), name="psmnist-random-small", epochs=10)
