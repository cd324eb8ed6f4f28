"""Pathfinder (Long Range Arena): do two discs lie on one path? Grey levels as tokens, both ways; θ the release's."""

import math
from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

NEURON = PRFConfig(tau=2.0, delta=(1e-3, 1e-1), theta=(0.0, 2 * math.pi / 0.6))
MODEL = ClassifierConfig(
    vocabulary=256, classes=2, features=256, depth=6, neuron=NEURON, bidirectional=True, dropout=0.05
)


def pathfinder() -> RunConfig:
    return RunConfig(
        name="pathfinder", task="pathfinder", model=MODEL, batch=64, epochs=200, weight_decay=0.03, warmup=0.005
    )


def pathfinder_small() -> RunConfig:
    """Three blocks of 64 channels, 5 epochs."""
    model = replace(MODEL, features=64, depth=3, dropout=0.0)
    return replace(pathfinder(), name="pathfinder-small", model=model, epochs=5, warmup=0.05)
