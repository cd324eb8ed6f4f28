"""Handwritten digits of 8 × 8 pixels, pixel by pixel: the embedded data set, for a first run of a minute.

Channels, dropout, smoothing, the target of the fire rates and the epochs were chosen on the validation split:
docs/experiments/digits.md.
"""

from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

NEURON = PRFConfig(tau=5.0, delta=(1e-2, 1.0))
MODEL = ClassifierConfig(inputs=1, classes=10, features=128, depth=2, neuron=NEURON, dropout=0.1, rate_target=0.1)


def digits() -> RunConfig:
    return RunConfig(
        name="digits", task="digits", model=MODEL, batch=32, epochs=60, weight_decay=0.01, ema=0.99, label_smoothing=0.1
    )


def digits_small() -> RunConfig:
    """A quarter of the channels, 10 epochs: seconds."""
    return replace(digits(), name="digits-small", model=replace(MODEL, features=32), epochs=10)
