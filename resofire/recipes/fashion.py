"""Fashion-MNIST pixel by pixel, as sMNIST but without warps; the paper does not have it."""

from dataclasses import replace

from ..train import RunConfig
from .smnist import smnist

WARPS = ("shift", "turn", "stretch", "bend")


def fashion() -> RunConfig:
    return replace(smnist(), name="fashion", task="fashion", task_settings=dict.fromkeys(WARPS, 0.0))


def fashion_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(fashion(), name="fashion-small", epochs=10)
