"""Text (Long Range Arena): is a film review kind, by its characters. The paper's table, θ and warm-up the release's."""

import math
from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

NEURON = PRFConfig(tau=2.0, delta=(1e-3, 1e-1), theta=(0.0, 2 * math.pi / 16))
MODEL = ClassifierConfig(vocabulary=134, classes=2, features=256, depth=6, neuron=NEURON)


def text() -> RunConfig:
    return RunConfig(name="text", task="text", model=MODEL, batch=16, epochs=32, weight_decay=0.05, warmup=0.1)


def text_small() -> RunConfig:
    """Three blocks of 128 channels, 10 epochs."""
    return replace(text(), name="text-small", model=replace(MODEL, features=128, depth=3), batch=32, epochs=10)
