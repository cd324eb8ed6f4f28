"""Fashion-MNIST pixel by pixel, as sMNIST but without warps; the paper does not have it."""

from dataclasses import replace

from ..train import RunConfig
from .smnist import smnist


def fashion() -> RunConfig:
    like = smnist()
    return replace(like, name="fashion", task="fashion", task_settings=dict.fromkeys(like.task_settings, 0.0))


def fashion_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(fashion(), name="fashion-small", epochs=10)
