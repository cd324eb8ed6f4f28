"""Handwritten digits of 8 × 8 pixels, pixel by pixel: the embedded data set, for a first run of a minute or two."""

from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

MODEL = ClassifierConfig(inputs=1, classes=10, features=64, depth=2, neuron=PRFConfig(tau=5.0, delta=(1e-2, 1.0)))


def digits() -> RunConfig:
    return RunConfig(name="digits", task="digits", model=MODEL, batch=32, epochs=40, weight_decay=0.01, ema=0.99)


def digits_small() -> RunConfig:
    """Half the channels, a quarter of the time: seconds."""
    return replace(digits(), name="digits-small", model=replace(MODEL, features=32), epochs=10)
