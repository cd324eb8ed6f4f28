"""ListOps (Long Range Arena): nested operations. Post-norm; the paper's table, θ and warm-up the release's."""

import math
from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

NEURON = PRFConfig(tau=2.0, delta=(1e-3, 1e-1), theta=(0.0, 2 * math.pi / 12))
MODEL = ClassifierConfig(vocabulary=18, classes=10, features=128, depth=8, neuron=NEURON, prenorm=False)


def listops() -> RunConfig:
    return RunConfig(name="listops", task="listops", model=MODEL, batch=50, epochs=40, weight_decay=0.05, warmup=1 / 80)


def listops_small() -> RunConfig:
    """Four blocks of 64 channels, 8 epochs."""
    model = replace(MODEL, features=64, depth=4)
    return replace(listops(), name="listops-small", model=model, epochs=8, warmup=0.05)
