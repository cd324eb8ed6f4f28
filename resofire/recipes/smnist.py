"""MNIST pixel by pixel. Two blocks of 128 channels: 68,876 parameters, the size of the paper's network.

The paper gives neither schedule nor rates for it. τ, Δ, batch and warm-up are the release's; instead of its 200 epochs
there are 30 with dropout, label smoothing and an average of the weights. This is the recipe of the shipped network
`smnist`. Training images may be warped (`--task-settings.shift`, `turn`, `stretch`, `bend`): LOG.md has the figures.
"""

from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

MODEL = ClassifierConfig(inputs=1, classes=10, features=128, depth=2, neuron=PRFConfig(tau=5.0, delta=(1e-2, 1.0)))


def smnist() -> RunConfig:
    return RunConfig(
        name="smnist", task="smnist", model=replace(MODEL, dropout=0.1), batch=64, epochs=30, weight_decay=0.02,
        ema=0.999, label_smoothing=0.1, task_settings={"shift": 0.0, "turn": 0.0, "stretch": 0.0, "bend": 0.0},
    )  # fmt: skip


def smnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(smnist(), name="smnist-small", epochs=10)
