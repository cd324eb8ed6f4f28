"""MNIST pixel by pixel. Two blocks of 128 channels: 68,876 parameters, the size of the paper's network.

The paper gives neither schedule nor rates for it; these are the release's: τ = 5, Δ from 0.01 to 1, 200 epochs of
batches of 64, 5 % of them to warm up.
"""

from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

MODEL = ClassifierConfig(inputs=1, classes=10, features=128, depth=2, neuron=PRFConfig(tau=5.0, delta=(1e-2, 1.0)))


def smnist() -> RunConfig:
    return RunConfig(name="smnist", task="smnist", model=MODEL, batch=64, epochs=200, weight_decay=0.01)


def smnist_small() -> RunConfig:
    """The same network, 10 epochs."""
    return replace(smnist(), name="smnist-small", epochs=10, ema=0.999)
