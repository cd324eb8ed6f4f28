"""MNIST with its pixels in another order, always the same. Two orders circulate, and are not comparable.

psmnist          bitrev: the order of bit-reversed numbers
psmnist-random   random: numpy's RandomState(92916)

What belongs together lies far apart in these orders, and with the release's τ = 5 the network learns slowly: it is 20
here. Training images are moved, turned and stretched a little before their pixels are put into order, and there is no
dropout. This is the recipe of the shipped network `psmnist-bitrev`; all else is as in `smnist`.
"""

from dataclasses import replace

from ..nn import PRFConfig
from ..train import RunConfig
from .smnist import MODEL, smnist


def psmnist() -> RunConfig:
    neuron = PRFConfig(tau=20.0, delta=(1e-2, 1.0))
    return replace(
        smnist(), name="psmnist", task="psmnist-bitrev", model=replace(MODEL, neuron=neuron), epochs=16,
        task_settings={"shift": 0.5, "turn": 5.0, "stretch": 0.05, "bend": 0.0},
    )  # fmt: skip


def psmnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist(), name="psmnist-small", epochs=10)


def psmnist_random() -> RunConfig:
    return replace(psmnist(), name="psmnist-random", task="psmnist-random")


def psmnist_random_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist_random(), name="psmnist-random-small", epochs=10)
