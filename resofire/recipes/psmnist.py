"""MNIST with its pixels in another order, always the same. Two orders circulate, and are not comparable.

psmnist          bitrev: the order of bit-reversed numbers
psmnist-random   random: numpy's RandomState(92916)

Training images are moved, turned, stretched and bent before their pixels are put into order, less than in `smnist`;
there is no dropout, and there are 28 epochs. All else is as there. The shipped networks `psmnist-bitrev` and
`psmnist-random` were trained just so, `psmnist-random-clock` with --model.neuron.even --model.clock 2 --epochs 36.
"""

from dataclasses import replace

from ..train import RunConfig
from .smnist import MODEL, smnist


def psmnist() -> RunConfig:
    return replace(
        smnist(), name="psmnist", task="psmnist-bitrev", model=MODEL, epochs=28,
        task_settings={"shift": 0.7, "turn": 6.0, "stretch": 0.06, "bend": 1.0},
    )  # fmt: skip


def psmnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist(), name="psmnist-small", epochs=10)


def psmnist_random() -> RunConfig:
    return replace(psmnist(), name="psmnist-random", task="psmnist-random")


def psmnist_random_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(psmnist_random(), name="psmnist-random-small", epochs=10)
