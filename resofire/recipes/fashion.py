"""Fashion-MNIST pixel by pixel, as sMNIST; the paper does not have it."""

from dataclasses import replace

from ..train import RunConfig
from .smnist import smnist, smnist_small


def fashion() -> RunConfig:
    return replace(smnist(), name="fashion", task="fashion")


def fashion_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(smnist_small(), name="fashion-small", task="fashion")
