"""Digits (shipped with scikit-learn; trains in a minute), spoken digits and colour CIFAR-10.

digits    8 × 8 pixels one by one; settings chosen on the validation split, see docs/experiments/digits.md
speech    raw waves of about 3,500 samples; not in the paper, so the settings are ours
scifar    as Image, but in colour, pre-norm and with the release's τ = 4
"""

from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig
from .arena import IMAGE, image_paper, image_small
from .registry import recipe

DIGITS = ClassifierConfig(
    inputs=1, classes=10, features=128, depth=2, neuron=PRFConfig(tau=5.0, delta=(1e-2, 1.0)), dropout=0.1,
    rate_target=0.1,
)  # fmt: skip
SPEECH = ClassifierConfig(
    inputs=1, classes=10, features=128, depth=4, neuron=PRFConfig(tau=10.0, delta=(1e-3, 1.0)), dropout=0.05
)
SCIFAR = replace(IMAGE, inputs=3, neuron=PRFConfig(tau=4.0, delta=(1e-3, 1e-1)), prenorm=True)


@recipe
def digits() -> RunConfig:
    """Handwritten digits of 8 × 8 pixels."""
    return RunConfig(
        name="digits", task="digits", model=DIGITS, batch=32, epochs=60, weight_decay=0.01, ema=0.99,
        label_smoothing=0.1,
    )  # fmt: skip


@recipe
def digits_small() -> RunConfig:
    """A quarter of the channels, 10 epochs; takes seconds."""
    return replace(digits(), name="digits-small", model=replace(DIGITS, features=32), epochs=10)


@recipe
def speech() -> RunConfig:
    """Spoken digits."""
    return RunConfig(name="speech", task="speech", model=SPEECH, batch=32, epochs=100, weight_decay=0.05, ema=0.99)


@recipe
def speech_small() -> RunConfig:
    """Three blocks of 64 channels, 30 epochs."""
    return replace(speech(), name="speech-small", model=replace(SPEECH, features=64, depth=3), epochs=30)


@recipe
def scifar() -> RunConfig:
    """Colour CIFAR-10 pixel by pixel."""
    return replace(image_paper(), name="scifar", task="scifar", model=SCIFAR)


@recipe
def scifar_small() -> RunConfig:
    """Three blocks of 96 channels, 10 epochs."""
    model = replace(SCIFAR, features=96, depth=3, dropout=0.0)
    return replace(image_small(), name="scifar-small", task="scifar", model=model)
