"""MNIST with its pixels in another order, always the same. Two orders circulate, and are not comparable.

psmnist          bitrev: the order of bit-reversed numbers
psmnist-random   random: numpy's RandomState(92916)

All else is as in `smnist`; images are moved before their pixels are put into order.
"""

from dataclasses import replace

from ..train import RunConfig
from .smnist import smnist


def psmnist() -> RunConfig:
    return replace(smnist(), name="psmnist", task="psmnist-bitrev")


def psmnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist(), name="psmnist-small", epochs=10)


def psmnist_random() -> RunConfig:
    return replace(psmnist(), name="psmnist-random", task="psmnist-random")


def psmnist_random_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist_random(), name="psmnist-random-small", epochs=10)
