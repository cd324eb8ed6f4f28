"""Path-X (Long Range Arena): Pathfinder of 16,384 pixels. Unsolved in the paper; τ and θ are the release's try."""

import math
from dataclasses import replace

from ..nn import PRFConfig
from ..train import RunConfig
from .pathfinder import MODEL as PATHFINDER
from .pathfinder import pathfinder

MODEL = replace(PATHFINDER, neuron=PRFConfig(tau=100.0, delta=(1e-3, 1e-1), theta=(0.0, 2 * math.pi / 10)))


def pathx() -> RunConfig:
    return replace(pathfinder(), name="pathx", task="pathx", model=MODEL, batch=16, epochs=50)


def pathx_small() -> RunConfig:
    """Two blocks of 64 channels, 3,000 steps."""
    model = replace(MODEL, features=64, depth=2, dropout=0.0)
    return replace(pathx(), name="pathx-small", model=model, steps=3_000, validate_every=1_500, warmup=0.05)
