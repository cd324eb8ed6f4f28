"""MNIST with its pixels in another order, always the same. Two orders circulate, and are not comparable.

psmnist          bitrev: the order of bit-reversed numbers
psmnist-random   random: numpy's RandomState(92916)
"""

from dataclasses import replace

from ..train import RunConfig
from .smnist import smnist, smnist_small


def psmnist() -> RunConfig:
    return replace(smnist(), name="psmnist", task="psmnist-bitrev")


def psmnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(smnist_small(), name="psmnist-small", task="psmnist-bitrev")


def psmnist_random() -> RunConfig:
    return replace(smnist(), name="psmnist-random", task="psmnist-random")


def psmnist_random_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(smnist_small(), name="psmnist-random-small", task="psmnist-random")
