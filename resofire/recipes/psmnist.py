"""MNIST with its pixels in another order, always the same. Two orders circulate, and are not comparable.

psmnist          bitrev: the order of bit-reversed numbers
psmnist-random   random: numpy's RandomState(92916)

As `smnist`, with half its dropout and images that are not moved: this task is learnt more slowly, and overfitting
begins later.
"""

from dataclasses import replace

from ..train import RunConfig
from .smnist import MODEL, smnist


def psmnist() -> RunConfig:
    return replace(
        smnist(), name="psmnist", task="psmnist-bitrev", model=replace(MODEL, dropout=0.05), task_settings={}
    )


def psmnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist(), name="psmnist-small", epochs=10)


def psmnist_random() -> RunConfig:
    return replace(psmnist(), name="psmnist-random", task="psmnist-random")


def psmnist_random_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist_random(), name="psmnist-random-small", epochs=10)
